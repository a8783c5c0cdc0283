"""GPT-2 124M in JAX, for train_cpu.py: gpt2_jax.py WEIGHTS SEQUENCES POSITIONS THREADS. The whole step, with clipping and
AdamW, is one jitted function to which parameters and moments are donated."""

import os
import sys

import gpt2_peer as peer
import jax
import jax.numpy as jnp


def norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight + bias


def linear(p, name, x):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def block(p, at, x):
    b, t, c = x.shape
    qkv = linear(p, at + "attn.c_attn", norm(x, p[at + "ln_1.weight"], p[at + "ln_1.bias"]))
    q, k, v = (part.reshape(b, t, peer.HEADS, c // peer.HEADS) for part in jnp.split(qkv, 3, axis=2))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, c)
    x = x + linear(p, at + "attn.c_proj", y)
    hidden = jax.nn.gelu(linear(p, at + "mlp.c_fc", norm(x, p[at + "ln_2.weight"], p[at + "ln_2.bias"])), approximate=True)
    return x + linear(p, at + "mlp.c_proj", hidden)


def loss_of(p, tokens, targets):
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for layer in range(peer.LAYERS):
        x = block(p, f"h.{layer}.", x)
    logits = norm(x, p["ln_f.weight"], p["ln_f.bias"]) @ p["wte.weight"].T
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=2)[..., 0]
    return (jax.nn.logsumexp(logits, axis=2) - chosen).mean()


def update(p, m, v, count, tokens, targets):
    loss, gradients = jax.value_and_grad(loss_of)(p, tokens, targets)
    total = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    clip = jnp.minimum(1.0, peer.CLIP / (total + 1e-6))
    count = count + 1
    first, second = 1 - peer.BETAS[0] ** count, 1 - peer.BETAS[1] ** count
    for name, gradient in gradients.items():
        g = gradient * clip
        m[name] = peer.BETAS[0] * m[name] + (1 - peer.BETAS[0]) * g
        v[name] = peer.BETAS[1] * v[name] + (1 - peer.BETAS[1]) * g * g
        decay = peer.DECAY if p[name].ndim > 1 else 0.0
        move = m[name] / first / (jnp.sqrt(v[name] / second) + peer.EPSILON) + decay * p[name]
        p[name] = p[name] - peer.RATE * move
    return p, m, v, count, loss


def main():
    path, sequences, positions, threads = sys.argv[1:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])  # XLA makes a thread for each
    state = [{name: jnp.array(value) for name, value in peer.weights(path).items()}]
    state += [{name: jnp.zeros_like(value) for name, value in state[0].items()} for _ in range(2)]
    state.append(jnp.zeros((), jnp.float32))
    compiled = jax.jit(update, donate_argnums=(0, 1, 2))

    def step(tokens, targets):
        results = jax.block_until_ready(compiled(*state, tokens, targets))
        state[:] = results[:-1]
        return float(results[-1])

    a, b = jnp.ones((1024, 768)), jnp.ones((768, 3072))
    product = jax.jit(lambda a, b: a @ b)
    rate = peer.product_rate(lambda: product(a, b).block_until_ready())
    peer.serve(f"JAX {jax.__version__}, XLA's own products at {rate:.0f} GFLOP/s", step, int(sequences), int(positions))


if __name__ == "__main__":
    main()
