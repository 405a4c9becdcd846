"""The verb `extract`: the states themselves, written by any number of processes, and `Extractor`.

A folder of states has, in format 1:

- `states.json`: an object with a checksum. `format`; `model` (name, source, weights, depth, width
  …) and `data` (name, source, modality, columns, fingerprint, `rows` where they were known) as in a
  run's manifest; `layers`, rising; `site` (`raw` or `normed`); `poolings`, empty for the states of
  every token; `store_dtype` (`float32`, `float16`, `bfloat16`); `file_format` (`safetensors` or
  `parquet`); `chunk_rows`; `options`; `command`. Once all chunks are there also `whole`: `samples`,
  `rows`, `tokens`, `cut`, `broken` of all chunks, and `chunks`, for each in order its `name`,
  `samples`, `bytes` and `sha256`. Without `whole` a folder is not finished.
- `chunks/000017.safetensors` or `.parquet`: the states of the samples in rows 17 · `chunk_rows` and
  following of the data, in their order. Rows without a text, a label where the data have labels, or
  a token are left out.
- `done/000017.json`: written after it, with a checksum: `samples`, `rows` of the data, `tokens`,
  `bytes`, `sha256`, `cut` (texts cut at the maximal length), `broken` (id and first layer of each
  sample with a NaN or an infinity, which is kept as it is). A chunk without it is not finished.
- `end.json`: how many `chunks` the data have, once someone has read to their end.

A safetensors chunk holds `states` `[layers, n, D]`, or `states.mean`, `states.cls` … of several
poolings; of every token's states `[layers, T, D]` of all samples one after another, with `offsets`
`[n + 1]` (sample i has the rows from `offsets[i]` to `offsets[i + 1]`) and, of texts, `token_ids`
`[T]`. Its metadata have one entry, `samples`: a JSON object with `id`, the name of each sample, and
`label`, a text for each where the data have labels.

A Parquet chunk has a row a sample: `id`, `label` where there are labels, and for each layer
`layer_8`, a list of D numbers, or `layer_8.mean`, `layer_8.cls` … of several poolings; of every
token's states a list of such lists, and `token_ids`.

A chunk's bytes depend on the data, the model, the options, the versions of the libraries and the
number of threads, never on which process computes it.
"""

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone
# takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
