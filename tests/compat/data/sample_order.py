"""The order in which muster-train takes samples, written down again for tests that train PyTorch on the same ones."""
MASK = (1 << 64) - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def permute(seed, epoch, index, n):
    """trainer/data/order.h: which sample is number `index` of an epoch of n."""
    half = 1
    while 1 << 2 * half < n:
        half += 1
    mask, key = (1 << half) - 1, mix((seed + 0x9E3779B97F4A7C15 * (epoch + 1)) & MASK)
    while True:
        left, right = index >> half, index & mask
        for i in range(4):
            left, right = right, left ^ (mix((key + i * 0xD1B54A32D192ED03 + right) & MASK) & mask)
        index = left << half | right
        if index < n:
            return index
