#!/usr/bin/env python3
"""Programs that PyTorch compiles, for tools/dry-check: compiled.py NAME [--limit BYTES]

Inductor and Triton make their kernels without a device; with graphs, PyTorch captures these, too.
"""
import sys

import torch
from torch import nn

import models
import programs
from programs import DEVICE


def rows_of(step):
    return (torch.zeros(8, 384, dtype=torch.long, device=DEVICE),)


def loss_of(net, ids):
    return nn.functional.cross_entropy(net(ids).flatten(0, 1).float(), ids.flatten())


def gpt():
    programs.train(torch.compile(programs.Gpt()), rows_of, loss_of)


def graphs():
    net = programs.Gpt().to(DEVICE)
    made, optimizer = torch.compile(net, mode="reduce-overhead"), torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(6):
        torch.compiler.cudagraph_mark_step_begin()  # what graphs have left of the last step, its gradients too, is done with
        optimizer.zero_grad(set_to_none=True)
        loss_of(made, *rows_of(step)).backward()
        optimizer.step()


@torch.no_grad()
def serves():
    net = torch.compile(programs.Gpt().half().to(DEVICE).eval(), mode="reduce-overhead")
    for step in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        net(torch.zeros(4, 256 if step % 2 else 128, dtype=torch.long, device=DEVICE))


def llama():
    programs.train(torch.compile(models.llama_of().bfloat16()), lambda step: (torch.zeros(4, 384, dtype=torch.long, device=DEVICE),),
                   models.loss_of)


def vit():
    from transformers import ViTConfig, ViTForImageClassification
    net = ViTForImageClassification(ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536))
    programs.train(torch.compile(net), lambda step: (torch.randn(16, 3, 224, 224, device=DEVICE),),
                   lambda made, x: made(pixel_values=x).logits.square().mean())


PROGRAMS = {"gpt": gpt, "graphs": graphs, "serves": serves, "llama": llama, "vit": vit}

if __name__ == "__main__":
    programs.PROGRAMS = PROGRAMS
    sys.exit(programs.main())
