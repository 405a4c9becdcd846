"""Definitions written out plainly in float64 numpy, for comparison with the library; slow on purpose."""

import numpy as np


def rows_as(Z, rows):
    Z = np.asarray(Z, dtype=np.float64)
    if rows == "raw":
        return Z
    if rows == "centered":
        Z = Z - Z.mean(0)
    return np.array([z / np.linalg.norm(z) if np.linalg.norm(z) > 0 else z for z in Z])


def renyi(p, alpha):
    p = np.asarray(p, dtype=np.float64)
    p = p[p > 0] / p.sum()
    if alpha == 1:
        return float(-(p * np.log(p)).sum())
    return float(np.log((p**alpha).sum()) / (1 - alpha))


def matrix_entropy(Z, alpha=1.0, rows="unit"):
    return renyi(np.linalg.svd(rows_as(Z, rows), compute_uv=False) ** 2, alpha)


def effective_rank(Z, center=False):
    Z = np.asarray(Z, dtype=np.float64)
    return np.exp(renyi(np.linalg.svd(Z - Z.mean(0) * center, compute_uv=False), 1))


def curvature(tokens):
    steps = np.diff(np.asarray(tokens, dtype=np.float64), axis=0)
    angles = []
    for u, w in zip(steps[:-1], steps[1:], strict=True):
        if np.any(u) and np.any(w):
            u, w = u / np.linalg.norm(u), w / np.linalg.norm(w)
            angles.append(2 * np.arctan2(np.linalg.norm(u - w), np.linalg.norm(u + w)))
    return float(np.mean(angles)) if angles else float("nan")


def infonce_one_way(a, b, temperature=0.1):
    a, b = rows_as(a, "unit"), rows_as(b, "unit")
    losses = []
    for i in range(len(a)):
        scores = [np.exp(a[i] @ b[j] / temperature) for j in range(len(b))]
        losses.append(-np.log(scores[i] / sum(scores)))
    return float(np.mean(losses))


def lidar(views, delta=1e-4, eps=0.0):
    views = np.asarray(views, dtype=np.float64)
    n, q, width = views.shape
    means = views.mean(1)
    between = sum(np.outer(m, m) for m in means - means.mean(0)) / (n - 1)
    within = sum(np.outer(v, v) for v in (views - means[:, None]).reshape(-1, width)) / (
        n * (q - 1)
    )
    values, vectors = np.linalg.eigh(within + delta * np.eye(width))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    spectrum = np.linalg.eigvalsh(root @ between @ root).clip(0)
    p = spectrum / spectrum.sum() + eps
    return float(np.exp(-np.sum(p[p > 0] * np.log(p[p > 0]))))


def dime(a, b, permutations, alpha=1.0):
    a, b = rows_as(a, "unit"), rows_as(b, "unit")

    def entropy(order):
        joint = np.array([[(x @ y) for y in a] for x in a]) * (b[order] @ b[order].T)
        return renyi(np.linalg.eigvalsh(joint).clip(0), alpha)

    return float(np.mean([entropy(p) for p in permutations]) - entropy(np.arange(len(a))))


def hsic_1(K, L):
    """Song et al. 2012 with explicit zero diagonals and no algebra."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    one = np.ones(n)
    terms = np.trace(K @ L) + (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
    return (terms - 2 / (n - 2) * one @ K @ L @ one) / (n * (n - 3))


def hsic_0(K, L):
    H = np.eye(len(K)) - 1 / len(K)
    return np.trace(K @ H @ L @ H)


def linear_gram(X):
    X = np.asarray(X, dtype=np.float64)
    return (X - X.mean(0)) @ (X - X.mean(0)).T


def rbf_gram(X, sigma):
    X = np.asarray(X, dtype=np.float64)
    return np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * sigma**2))


def cka(K, L, debiased=True):
    hsic = hsic_1 if debiased else hsic_0
    return float(hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L)))


def cosines(X, Y, center=True):
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    X, Y = X - X.mean(0) * center, Y - Y.mean(0) * center
    return np.array(
        [x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) for x, y in zip(X, Y, strict=True)]
    )


def saturation(row, first_layer=1):
    return next(i for i in range(len(row)) if all(r == row[-1] for r in row[i:])) + first_layer


def rankme(Z, eps=1e-7):
    sizes = np.linalg.svd(np.asarray(Z, dtype=np.float64), compute_uv=False)
    return float(np.exp(sum(-q * np.log(q) for q in sizes / sizes.sum() + eps)))


def covariance_eigenvalues(Z):
    return np.linalg.eigvalsh(np.cov(np.asarray(Z, dtype=np.float64), rowvar=False))[::-1]


def anisotropy(Z):
    values = covariance_eigenvalues(Z)
    return float(values[0] / values.sum())


def alpha_req(Z, fit=(10, 100)):
    values = covariance_eigenvalues(Z)
    ranks = np.arange(fit[0], min(fit[1], len(Z) - 1, len(values)) + 1)
    # polyfit takes the roots of the weights
    slope, _ = np.polyfit(np.log(ranks), np.log(values[ranks - 1]), 1, w=ranks**-0.5)
    return -float(slope)


def two_nn(Z, discard=0.1):
    """Facco et al. 2017, section Methods, with every distance written out; equal rows count once."""
    Z = np.unique(np.asarray(Z, dtype=np.float64), axis=0)
    distances = np.array(
        [
            [np.linalg.norm(a - b) if i != j else np.inf for j, b in enumerate(Z)]
            for i, a in enumerate(Z)
        ]
    )
    nearest = np.sort(distances, axis=1)
    ratios = np.sort(nearest[:, 1] / nearest[:, 0])
    kept = min(int(np.ceil(len(Z) * (1 - discard))), len(Z) - 1)
    x = np.log(ratios[:kept])
    y = [-np.log(1 - i / len(Z)) for i in range(1, kept + 1)]
    return float((x @ y) / (x @ x))


def norms(tokens):
    """Mean, median, largest norm and share of sinks of the tokens of one sample."""
    sizes = np.sqrt((np.asarray(tokens, dtype=np.float64) ** 2).sum(-1))
    return sizes.mean(), np.median(sizes), sizes.max(), np.mean(sizes > 10 * np.median(sizes))


def centred(X):
    X = np.asarray(X, dtype=np.float64)
    return X - X.mean(0)


def canonical(X, Y):
    """Canonical correlations, descending, and the directions of X they belong to, from covariances."""
    X, Y = centred(X), centred(Y)
    product = np.linalg.inv(X.T @ X) @ (X.T @ Y) @ np.linalg.inv(Y.T @ Y) @ (Y.T @ X)
    values, vectors = np.linalg.eig(product)
    order = np.argsort(-values.real)[: min(X.shape[1], Y.shape[1])]
    return np.sqrt(values.real[order].clip(0, 1)), vectors.real[:, order]


def leading(X, variance):
    """The fewest principal components that explain a share of the variance."""
    X = centred(X)
    values, vectors = np.linalg.eigh(X.T @ X)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = next(
        k
        for k in range(1, len(values) + 1)
        if values[:k].sum() >= variance * values.sum() * (1 - 1e-12)
    )
    return X @ vectors[:, :keep]


def pwcca(X, Y):
    correlations, directions = canonical(X, Y)
    variates = [centred(X) @ a / np.linalg.norm(centred(X) @ a) for a in directions.T]
    weights = np.array([sum(abs(h @ x) for x in centred(X).T) for h in variates])
    return float(weights @ correlations / weights.sum())


def neighbours(X, k, distance):
    """Indices of the k nearest rows of each, of equally near ones (to 1e-12) the first."""
    X = np.asarray(X, dtype=np.float64)
    if distance == "cosine":
        X = rows_as(X, "unit")
    near = []
    for i in range(len(X)):
        far = {j: round(float(((X[i] - X[j]) ** 2).sum()), 11) for j in range(len(X)) if j != i}
        near.append(set(sorted(far, key=lambda j: (far[j], j))[:k]))
    return near
