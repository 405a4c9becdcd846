"""Definitions written out plainly in float64 numpy and scipy, for comparison with the library; slow on purpose.

Each takes what the metric of its name takes, for one layer; those of tokens take the real tokens of one sample.
"""

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cdist, pdist
from scipy.stats import pearsonr, spearmanr


def float64(X):
    return np.asarray(X, dtype=np.float64)


def centred(X):
    return float64(X) - float64(X).mean(0)


def rows_as(Z, rows):
    Z = centred(Z) if rows == "centered" else float64(Z)
    if rows == "raw":
        return Z
    return np.array([z / np.linalg.norm(z) if np.linalg.norm(z) > 0 else z for z in Z])


def renyi(p, alpha):
    p = float64(p)
    p = p[p > 0] / p.sum()
    if alpha == 1:
        return float(-(p * np.log(p)).sum())
    if alpha == np.inf:
        return float(-np.log(p.max()))
    return float(np.log((p**alpha).sum()) / (1 - alpha))


def matrix_entropy(Z, alpha=1.0, rows="unit"):
    return renyi(np.linalg.svd(rows_as(Z, rows), compute_uv=False) ** 2, alpha)


dataset_entropy = prompt_entropy = matrix_entropy


def effective_rank(Z, center=False):
    values = np.linalg.svd(centred(Z) if center else float64(Z), compute_uv=False)
    return np.exp(renyi(values, 1))


def rankme(Z, eps=1e-7):
    values = np.linalg.svd(float64(Z), compute_uv=False)
    return float(np.exp(sum(-p * np.log(p) for p in values / values.sum() + eps)))


def covariance_eigenvalues(Z):
    return np.linalg.eigvalsh(np.cov(float64(Z), rowvar=False))[::-1]


def anisotropy(Z):
    values = covariance_eigenvalues(Z)
    return float(values[0] / values.sum())


def isotropy(Z):
    values = covariance_eigenvalues(Z)
    return float(values.mean() / values.std())


def nesum(Z):
    values = covariance_eigenvalues(Z)
    return float(sum(value / values[0] for value in values))


def alpha_req(Z, fit=(10, 100)):
    values = covariance_eigenvalues(Z)
    ranks = np.arange(fit[0], min(fit[1], len(Z) - 1, len(values)) + 1)
    # polyfit takes the roots of the weights
    slope, _ = np.polyfit(np.log(ranks), np.log(values[ranks - 1]), 1, w=ranks**-0.5)
    return -float(slope)


def intrinsic_dimension(Z, discard=0.1):
    """Facco et al. 2017, section Methods, with every distance written out; equal rows count once."""
    Z = np.unique(float64(Z), axis=0)
    nearest = np.sort(cdist(Z, Z), axis=1)  # the first is the row itself
    ratios = np.sort(nearest[:, 2] / nearest[:, 1])
    kept = min(int(np.ceil(len(Z) * (1 - discard))), len(Z) - 1)
    x = np.log(ratios[:kept])
    y = [-np.log(1 - i / len(Z)) for i in range(1, kept + 1)]
    return float((x @ y) / (x @ x))


def curvature(tokens):
    steps = np.diff(float64(tokens), axis=0)
    angles = []
    for u, w in zip(steps[:-1], steps[1:], strict=True):
        if np.any(u) and np.any(w):
            u, w = u / np.linalg.norm(u), w / np.linalg.norm(w)
            angles.append(2 * np.arctan2(np.linalg.norm(u - w), np.linalg.norm(u + w)))
    return float(np.mean(angles)) if angles else float("nan")


def norms(tokens):
    """Mean, median, largest norm and share of sinks of the tokens of one sample."""
    sizes = np.linalg.norm(float64(tokens), axis=1)
    median = np.median(sizes)
    return {
        "mean": sizes.mean(),
        "median": median,
        "maximum": sizes.max(),
        "sink_share": np.mean(sizes > 10 * median),
    }


def valley(tokens):
    """Compression and norms, over the median one, of the tokens of one sample."""
    values = np.linalg.svd(float64(tokens), compute_uv=False) ** 2
    sizes = np.linalg.norm(float64(tokens), axis=1) / norms(tokens)["median"]
    return {
        "entropy": renyi(values, 1) / np.log(len(values)),
        "first_singular": values[0] / values.sum(),
        "first_norm": sizes[0],
        "largest_norm": sizes.max(),
    }


def infonce(a, b, temperature=0.1, symmetric=True):
    if symmetric:
        return (
            infonce(a, b, temperature, False) + infonce(b, a, temperature, False)
        ) / 2
    a, b = rows_as(a, "unit"), rows_as(b, "unit")
    losses = []
    for i in range(len(a)):
        scores = [np.exp(a[i] @ b[j] / temperature) for j in range(len(b))]
        losses.append(-np.log(scores[i] / sum(scores)))
    return float(np.mean(losses))


def infonce_bound(a, b):
    return np.log(len(a)) - infonce(a, b)


def lidar(views, delta=1e-4, eps=0.0):
    views = float64(views)
    n, q, width = views.shape
    means = views.mean(1)
    between = sum(np.outer(m, m) for m in means - means.mean(0)) / (n - 1)
    within = sum(np.outer(v, v) for v in (views - means[:, None]).reshape(-1, width))
    values, vectors = np.linalg.eigh(within / (n * (q - 1)) + delta * np.eye(width))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    spectrum = np.linalg.eigvalsh(root @ between @ root).clip(0)
    p = spectrum / spectrum.sum() + eps
    return float(np.exp(-np.sum(p[p > 0] * np.log(p[p > 0]))))


def dime(a, b, alpha=1.0, permutations=3, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rows_as(a, "unit"), rows_as(b, "unit")

    def entropy(order):
        joint = (a @ a.T) * (b[order] @ b[order].T)
        return renyi(np.linalg.eigvalsh(joint).clip(0), alpha)

    permuted = [entropy(rng.permutation(len(a))) for _ in range(permutations)]
    return float(np.mean(permuted) - entropy(np.arange(len(a))))


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
    return centred(X) @ centred(X).T


def rbf_gram(X, sigma):
    return np.exp(-cdist(float64(X), float64(X), "sqeuclidean") / (2 * sigma**2))


def cka_of_grams(K, L, debiased=True):
    hsic = hsic_1 if debiased else hsic_0
    return float(hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L)))


def cka(X, Y, kernel="linear", debiased=True, bandwidth=1.0):
    if kernel == "linear":
        return cka_of_grams(linear_gram(X), linear_gram(Y), debiased)
    return cka_of_grams(rbf_gram(X, bandwidth), rbf_gram(Y, bandwidth), debiased)


def cosine_similarity(X, Y, center=True):
    X, Y = (centred(X), centred(Y)) if center else (float64(X), float64(Y))
    pairs = zip(X, Y, strict=True)
    return np.array([x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) for x, y in pairs])


def angular_distance(X, Y, center=True):
    return np.arccos(cosine_similarity(X, Y, center)) / np.pi


def canonical(X, Y):
    """Canonical correlations, descending, and the directions of X they belong to, from covariances."""
    X, Y = centred(X), centred(Y)
    product = np.linalg.inv(X.T @ X) @ (X.T @ Y) @ np.linalg.inv(Y.T @ Y) @ (Y.T @ X)
    values, vectors = np.linalg.eig(product)
    order = np.argsort(-values.real)[: min(X.shape[1], Y.shape[1])]
    return np.sqrt(values.real[order].clip(0, 1)), vectors.real[:, order]


def cca(X, Y):
    return canonical(X, Y)[0].mean()


def leading(X, variance):
    """The fewest principal components that explain a share of the variance."""
    X = centred(X)
    values, vectors = np.linalg.eigh(X.T @ X)
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = values.cumsum() >= variance * values.sum() * (1 - 1e-12)
    return X @ vectors[:, : int(enough.argmax()) + 1]


def svcca(X, Y, variance=0.99):
    return cca(leading(X, variance), leading(Y, variance))


def pwcca(X, Y, weights_from="first"):
    if weights_from == "second":
        X, Y = Y, X
    correlations, directions = canonical(X, Y)
    variates = [centred(X) @ a / np.linalg.norm(centred(X) @ a) for a in directions.T]
    weights = np.array([sum(abs(h @ x) for x in centred(X).T) for h in variates])
    return float(weights @ correlations / weights.sum())


def procrustes(X, Y, kind="similarity"):
    X, Y = centred(X), centred(Y)
    width = max(X.shape[1], Y.shape[1])
    a, b = (np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in (X, Y))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    left = np.linalg.norm(a @ orthogonal_procrustes(a, b)[0] - b)
    return left if kind == "distance" else 1 - left**2 / 2


def rsa(X, Y, rdm="correlation", compare="spearman"):
    statistic = spearmanr if compare == "spearman" else pearsonr
    return statistic(pdist(float64(X), rdm), pdist(float64(Y), rdm)).statistic


def pnka(X, Y):
    pairs = zip(linear_gram(X), linear_gram(Y), strict=True)
    return np.array([k @ m / np.sqrt((k @ k) * (m @ m)) for k, m in pairs])


def ridge(X, Y, penalty):
    """Return the slopes and the intercept that cost least, the slopes squared times the penalty."""
    slopes = np.linalg.solve(
        centred(X).T @ centred(X) + penalty * np.eye(X.shape[1]),
        centred(X).T @ centred(Y),
    )
    return slopes, Y.mean(0) - X.mean(0) @ slopes


def linear_map(X, Y):
    """Ridge regressions without each sample in turn, at the penalty of the least cross-validation score of all."""
    X, Y = float64(X), float64(Y)
    n = len(X)
    scores = {}
    for penalty in np.linalg.norm(centred(X), 2) ** 2 * np.logspace(-6, 1, 8):
        slopes, intercept = ridge(X, Y, penalty)
        hat, _ = ridge(X, np.eye(n), penalty)
        freedom = 1 + np.trace(centred(X) @ hat)
        scores[penalty] = ((Y - X @ slopes - intercept) ** 2).sum() / (n - freedom) ** 2
    best = min(scores, key=scores.get)
    errors, guesses = [], []
    for i in range(n):
        others = np.arange(n) != i
        slopes, intercept = ridge(X[others], Y[others], best)
        errors.append(((Y[i] - X[i] @ slopes - intercept) ** 2).sum())
        guesses.append(((Y[i] - Y[others].mean(0)) ** 2).sum())
    return 1 - np.array(errors) / np.mean(guesses)


def neighbours(X, k, distance):
    """Indices of the k nearest rows of each, of equally near ones (to 1e-12) the first."""
    X = rows_as(X, "unit") if distance == "cosine" else float64(X)
    far = cdist(X, X, "sqeuclidean").round(11)
    np.fill_diagonal(far, np.inf)
    return [set(row[:k]) for row in far.argsort(axis=1, kind="stable")]


def mutual_knn(X, Y, k=10, distance="cosine"):
    pairs = zip(neighbours(X, k, distance), neighbours(Y, k, distance), strict=True)
    return np.mean([len(a & b) / k for a, b in pairs])


def saturation(row, first_layer=1):
    return (
        next(i for i in range(len(row)) if all(r == row[-1] for r in row[i:]))
        + first_layer
    )
