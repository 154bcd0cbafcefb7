/* Buddies, and at most 128 MiB alive, of the bytes that were requested: a block of one byte counts
 * one, however much of an arena it takes. */
#define CAP (UINT64_C(128) << 20)
#include "buddy.c"
