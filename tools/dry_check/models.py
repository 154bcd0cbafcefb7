#!/usr/bin/env python3
"""Models of transformers and torchvision, as people train and serve them, for tools/dry-check: models.py NAME [--limit BYTES]

Their weights are drawn, so that nothing is fetched. What is taken in `mixtral` depends on what its router computes.
"""
import sys
import tempfile

import torch
from torch import nn

import programs
from programs import DEVICE


def llama_of(**more):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                                        num_key_value_heads=4, vocab_size=8192, max_position_embeddings=1024, **more))


def loss_of(net, ids):
    return net(input_ids=ids, labels=ids).loss


def llama():
    """Rows of any length, with gradients kept for two steps."""
    programs.train(llama_of().bfloat16(), lambda step: (torch.zeros(4, 512 - 104 * (step % 3), dtype=torch.long, device=DEVICE),), loss_of,
                   steps=6)


def checkpointed():
    """What a layer computes is computed again in the backward pass."""
    model = llama_of()
    model.gradient_checkpointing_enable()
    model.train()
    programs.train(model, lambda step: (torch.zeros(8, 384 + 64 * step, dtype=torch.long, device=DEVICE),), loss_of)


@torch.no_grad()
def llama_generates():
    model = llama_of(eos_token_id=2, pad_token_id=0).half().to(DEVICE).eval()
    for rows, length in ((4, 100), (8, 37)):
        ids = torch.full((rows, length), 7, device=DEVICE)
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False)


class LowRank(nn.Module):
    def __init__(self, whole, rank):
        super().__init__()
        self.whole = whole
        self.down = nn.Linear(whole.in_features, rank, bias=False)
        self.up = nn.Linear(rank, whole.out_features, bias=False)

    def forward(self, x):
        return self.whole(x) + self.up(self.down(x.float())).to(x.dtype)


def lora():
    model = llama_of().bfloat16()
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name), 16))
    programs.train(model, lambda step: (torch.zeros(4, 256 + 96 * (step % 4), dtype=torch.long, device=DEVICE),), loss_of, steps=6)


def vit():
    from transformers import ViTConfig, ViTForImageClassification
    model = ViTForImageClassification(ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536))
    programs.train(model, lambda step: (torch.randn(16 + 4 * (step % 2), 3, 224, 224, device=DEVICE),),
                   lambda net, x: net(pixel_values=x).logits.square().mean())


def bert():
    """Rows that are padded to the longest, with a mask of their lengths."""
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536, vocab_size=8000))

    def batch(step):
        lengths = torch.tensor([64 + (37 * row * (step + 1)) % 192 for row in range(16)])
        mask = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).long()
        return (torch.ones_like(mask) * 9 * mask).to(DEVICE), mask.to(DEVICE)
    programs.train(model, batch, lambda net, ids, mask: net(input_ids=ids, attention_mask=mask,
                                                            labels=ids.masked_fill(mask == 0, -100)).loss)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM
    model = MixtralForCausalLM(MixtralConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=8,
                                             num_key_value_heads=4, num_local_experts=8, vocab_size=8192))
    programs.train(model.bfloat16(), lambda step: (torch.zeros(4, 256 + 64 * step, dtype=torch.long, device=DEVICE),), loss_of)


def diffusion():
    """Noise of a drawn time is added and foretold; then pictures are made in ten steps."""
    shares = torch.linspace(0.99, 0.01, 100, device=DEVICE)

    def noised(step):
        x, noise = torch.randn(4, 3, 128, 128, device=DEVICE), torch.randn(4, 3, 128, 128, device=DEVICE)
        share = shares[torch.randint(0, 100, (4,), device=DEVICE)][:, None, None, None]
        return share.sqrt() * x + (1 - share).sqrt() * noise, noise
    model = programs.UNet()
    programs.train(model, noised, lambda net, x, noise: nn.functional.mse_loss(net(x), noise))
    x = torch.randn(8, 3, 128, 128, device=DEVICE)
    with torch.no_grad():
        for _ in range(10):
            x = x - 0.1 * model(x)


def resnet():
    import torchvision
    programs.train(torchvision.models.resnet18(), lambda step: (torch.randn(16 + 8 * (step % 2), 3, 192, 192, device=DEVICE),),
                   lambda net, x: net(x).square().mean(), optimizer=lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9))


def trainer():
    """transformers' own loop, with its accelerator, its schedule and its clipped norm."""
    from transformers import Trainer, TrainingArguments

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, row):
            ids = torch.full((192,), row % 100)
            return {"input_ids": ids, "labels": ids}
    with tempfile.TemporaryDirectory() as folder:
        Trainer(llama_of(), TrainingArguments(folder, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=6, bf16=True,
                                              report_to=[], save_strategy="no", logging_steps=2, disable_tqdm=True),
                train_dataset=Rows()).train()


PROGRAMS = {"llama": llama, "checkpointed": checkpointed, "llama-generates": llama_generates, "lora": lora, "vit": vit, "bert": bert,
            "mixtral": mixtral, "diffusion": diffusion, "resnet": resnet, "trainer": trainer}

if __name__ == "__main__":
    programs.PROGRAMS = PROGRAMS
    sys.exit(programs.main())
