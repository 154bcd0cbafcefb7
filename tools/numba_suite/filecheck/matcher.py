import unittest

def Matcher(*arguments, **named):
    raise unittest.SkipTest("filecheck is not installed")
