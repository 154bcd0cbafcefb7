#!/usr/bin/env python3
"""Programs whose convolutions are cuDNN's, for tools/dry-check: convolutions.py NAME [--limit BYTES]"""
import sys

import torch
import torchvision
from torch import nn

import programs
from programs import DEVICE

torch.backends.cudnn.enabled = True


def trained(net, size, batches=(32, 48, 24), last=False, half=False):
    """A training in batches of several sizes."""
    net = net.to(DEVICE)
    if last:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for rows in batches * 2:
        images = torch.randn(rows, 3, size, size, device=DEVICE)
        if last:
            images = images.to(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            answer = net(images)
            loss = answer.float().square().mean()
        loss.backward()
        optimizer.step()


def resnet50():
    trained(torchvision.models.resnet50(), 224)


def resnet50_half():
    trained(torchvision.models.resnet50(), 224, half=True)


def convnext():
    trained(torchvision.models.convnext_tiny(), 224, batches=(16, 24))


def convnext_last():
    trained(torchvision.models.convnext_tiny(), 224, batches=(16, 24), last=True, half=True)


class UNet(nn.Module):
    """Down twice and up again, in blocks of two convolutions."""

    def __init__(self, width=48):
        super().__init__()

        def block(taken, made):
            return nn.Sequential(nn.Conv2d(taken, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU(),
                                 nn.Conv2d(made, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())
        self.first, self.second, self.last = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up_second, self.up_first = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join_second, self.join_first = block(4 * width, 2 * width), block(2 * width, width)
        self.to_image, self.pool = nn.Conv2d(width, 1, 1), nn.MaxPool2d(2)

    def forward(self, images):
        first = self.first(images)
        second = self.second(self.pool(first))
        second = self.join_second(torch.cat((self.up_second(self.last(self.pool(second))), second), 1))
        return self.to_image(self.join_first(torch.cat((self.up_first(second), first), 1)))


def unet_cudnn():
    trained(UNet(), 160, batches=(16, 20, 12))


PROGRAMS = {"resnet50": resnet50, "resnet50-half": resnet50_half, "convnext": convnext, "convnext-last": convnext_last, "unet-cudnn": unet_cudnn}

if __name__ == "__main__":
    programs.PROGRAMS = PROGRAMS
    sys.exit(programs.main())
