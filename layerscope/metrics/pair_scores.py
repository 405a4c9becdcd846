from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import FromReadings

PAIR_SPEARMAN = Metric(
    None,
    FromReadings(),
    name="pair_spearman",
    title="Spearman",
    reading="Spearman's ρ of the cosines of pairs with their scores, 1 is the same order",
    meaning="Spearman's rank correlation of the cosine between two texts' embeddings at a layer with the score that "
    "they were given; from -1 to 1.",
    direction="High: the layer's embeddings order pairs of texts as people do.",
    source="Cer et al. 2017, SemEval-2017 Task 1; its standard error by Bonett and Wright 2000",
)
PAIR_ACCURACY = Metric(
    None,
    FromReadings(),
    name="pair_accuracy",
    title="pairs found",
    unit="%",
    reading="first texts whose nearest second text is their own",
    meaning="Share of first texts for which, by the cosine of the embeddings at a layer, no second text of another "
    "pair is nearer than their own; from 0 to 100 %, and the more pairs there are the harder.",
    direction="High: the layer's embeddings find what belongs to a text.",
    source="Henderson et al. 2017, Efficient Natural Language Response Suggestion for Smart Reply (1-of-N accuracy)",
)
