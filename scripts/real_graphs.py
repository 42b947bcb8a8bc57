"""Real graphs and tables with places, read from unpacked packages into the archive that small_tables.py measures.

    mkdir real && cd real  # then: pip install rdata
    for p in spdata gstat sp fields ade4 modeldata spatstat.data ggraph; do apt-get download r-cran-$p; done
    apt-get download wordnet-base; for p in *.deb; do dpkg-deb -x $p .; done
    pip download --no-deps graspologic && unzip -q graspologic*.whl
    npm pack vega-datasets && tar xzf vega-datasets*.tgz
    python ../scripts/real_graphs.py . ../real.npz

Columns are all that are numbers, and one per level of those that are words with up to thirty levels. No target is
transformed but prices of houses, of which the logarithm is taken.
"""

import bz2
import gzip
import json
import lzma
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

FOLDER, WORDS, LEVELS = Path("."), 500, 30


def unpacked(raw):
    """What R's serializer wrote, by the mark of the compression; objects of a database have their length before it."""
    if raw[:2] == b"\x1f\x8b":
        return gzip.decompress(raw)
    if raw[4:5] == b"2":
        return bz2.decompress(raw[5:])
    if raw[4:5] == b"Z":
        return lzma.decompress(raw[5:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
    return zlib.decompress(raw[4:])


def of_r(package, name, inside=None):
    """An object of an R package's data."""
    import rdata

    data = FOLDER / "usr/lib/R/site-library" / package / "data"
    if not (data / "Rdata.rdx").exists():
        return rdata.read_rda(data / f"{name}.rda", default_encoding="latin1")[inside or name]
    parse = rdata.parser.parse_data
    places = rdata.conversion.convert(parse(unpacked((data / "Rdata.rdx").read_bytes())))["variables"]
    start, length = (int(each) for each in places[name])
    raw = (data / "Rdata.rdb").read_bytes()[start : start + length]
    return rdata.conversion.convert(parse(unpacked(raw)), default_encoding="latin1")


def columns(table):
    table = table.copy()
    for name in table:
        if not pd.api.types.is_numeric_dtype(table[name]):
            levels = table[name].nunique()
            table = table.drop(columns=name) if levels > LEVELS else pd.get_dummies(table, columns=[name], dtype=float)
    return table.astype(float).to_numpy()


def listed(neighbours):
    """R's list of neighbours, where 0 means none."""
    pairs = [(i, int(j) - 1) for i, each in enumerate(neighbours) for j in np.atleast_1d(each) if j > 0]
    return np.array(pairs).T


def near(places, k=6):
    """Each point with its k nearest others; of places that coincide some k."""
    other = cKDTree(places).query(places, k + 1)[1]
    keep = other != np.arange(len(places))[:, None]
    keep[keep.all(1), -1] = False
    return np.stack([np.repeat(np.arange(len(places)), k), other[keep]])


def codes(labels):
    return pd.factorize(np.asarray(labels), sort=True)[0]


def leukaemia():
    table = of_r("spData", "nydata")
    X = columns(table[["PCTOWNHOME", "PCTAGE65P", "PEXPOSURE", "POP8"]])
    return X, table["Z"], listed(of_r("spData", "listw_NY")["neighbours"])


def boston():
    table = of_r("spData", "boston.c")
    X = columns(table.loc[:, "CRIM":].drop(columns="CHAS").join(table["LON"]).join(table["LAT"]))
    return X, table["CMEDV"], listed(of_r("spData", "boston.soi"))


def turnout():
    table = of_r("spData", "elect80")
    return columns(table.data.iloc[:, 2:]), table.data["pc_turnout"], listed(of_r("spData", "e80_queen"))


def houses():
    table = of_r("spData", "house")
    X = columns(table.data.drop(columns=["price", "avalue"]))  # the assessed value is the price nearly
    return X, np.log(table.data["price"].astype(float)), listed(of_r("spData", "LO_nb"))


def ames():
    table = of_r("modeldata", "ames")
    places = table[["Longitude", "Latitude"]].to_numpy(float)
    return columns(table.drop(columns="Sale_Price")), np.log(table["Sale_Price"].astype(float)), near(places)


def rainfall():
    table = of_r("fields", "NorthAmericanRainfall")
    X = np.stack([table[name] for name in ("longitude", "latitude", "elevation")], 1)
    return X, table["precip"], near(X[:, :2])


def fulmars():
    table = of_r("gstat", "fulmar")
    return columns(table.drop(columns="fulmar")), table["fulmar"], near(table[["x", "y"]].to_numpy(float))


def meuse():
    table = of_r("sp", "meuse")
    X = columns(table[["x", "y", "elev", "dist", "om", "ffreq", "soil", "lime", "landuse"]])
    return X, table["zinc"], near(table[["x", "y"]].to_numpy(float))


def jura():
    table = pd.concat([of_r("gstat", "jura", f"jura.{part}") for part in ("pred", "val")])
    metals = columns(table[["Xloc", "Yloc", "Cd", "Co", "Cr", "Cu", "Ni", "Pb", "Zn"]])
    return metals, codes(table["Rock"]), near(metals[:, :2])


def mafragh():
    table = of_r("ade4", "mafragh")
    return columns(table["env"]), codes(table["partition"]), np.asarray(table["neig"]).astype(int).T - 1


def trees():
    table = of_r("spatstat.data", "lansing")
    places = np.stack([table["x"], table["y"]], 1)
    return places, codes(table["marks"]), near(places)


def fires():
    table = of_r("spatstat.data", "clmfires")
    places, marks = np.stack([table["x"], table["y"]], 1), table["marks"]
    X = np.hstack([places, columns(marks[["burnt.area", "date", "julian.date"]])])
    return X, codes(marks["cause"]), near(places)


def flare():
    """Files of a program and what they import: to which of its packages does one belong?"""
    table = of_r("ggraph", "flare")
    imports, size = table["imports"], table["vertices"].set_index("name")["size"]
    names = sorted(set(imports["from"]) | set(imports["to"]))
    edges = np.stack([[names.index(each) for each in imports[end]] for end in ("from", "to")])
    return size[names].to_numpy(float)[:, None], codes([name.split(".")[1] for name in names]), edges


def drosophila():
    """Synapses between neurons of both mushroom bodies of a larva: which of four kinds is one?"""
    folder, parts, kinds, start = FOLDER / "graspologic/datasets/drosophila", [], [], 0
    for side in ("left", "right"):
        A = np.loadtxt(folder / f"{side}_adjacency.csv")
        i, j = np.nonzero(A)
        parts.append(np.stack([i + start, j + start, A[i, j]]))
        kinds += (folder / f"{side}_cell_labels.csv").read_text().split()
        start += len(A)
    source, target, count = np.hstack(parts)
    edges = np.stack([source, target]).astype(int)
    left = (np.arange(start) < start // 2).astype(float)[:, None]
    return left, codes(kinds), edges, count


def mice():
    """Tracts between 332 regions of the brain, means over 32 mice: to which of seven parts does one belong?"""
    folder, total, columns = FOLDER / "graspologic/datasets/mice", np.zeros((332, 332)), []
    files = sorted((folder / "edgelists").glob("*"))
    for file in files:
        i, j, count = np.loadtxt(file).T
        total[i.astype(int), j.astype(int)] += count / len(files)
    for file in sorted((folder / "features").glob("*")):
        table = pd.read_csv(file, skiprows=2).query("ROI > 0")
        columns.append(table.drop(columns="ROI").to_numpy(float))
    blocks, y = pd.read_csv(folder / "blocks.csv"), np.zeros(332, int)
    for block in blocks.itertuples():
        y[block.i : block.j] = sorted(set(blocks["block"])).index(block.block)
    total = np.triu(total + total.T, 1)
    edges = np.stack(np.nonzero(total))
    return np.mean(columns, 0), y, edges, total[tuple(edges)]


def airports():
    """Flights between airports of the United States: in which of four regions does one lie?"""
    data = FOLDER / "package/data"
    regions = {
        "west": "WA OR CA NV ID MT WY UT CO AZ NM AK HI",
        "south": "TX OK AR LA MS AL TN KY WV VA MD DE DC NC SC GA FL",
        "midwest": "ND SD NE KS MN IA MO WI IL MI IN OH",
        "northeast": "PA NY NJ CT RI MA VT NH ME",
    }
    region = {state: name for name, states in regions.items() for state in states.split()}
    where = pd.read_csv(data / "airports.csv").set_index("iata")["state"].map(region)
    flights = pd.read_csv(data / "flights-airport.csv")
    flights = flights[flights["origin"].map(where).notna() & flights["destination"].map(where).notna()]
    names = sorted(set(flights["origin"]) | set(flights["destination"]))
    place = {name: k for k, name in enumerate(names)}
    edges = np.stack([flights[end].map(place) for end in ("origin", "destination")])
    total = np.bincount(edges.ravel(), np.tile(flights["count"], 2), len(names))
    return np.log1p(total)[:, None], codes(where[names]), edges, flights["count"].to_numpy(float)


def of_words(texts):
    """One column per word: the ``WORDS`` most frequent ones of more than three letters."""
    split = [{word for word in "".join(c if c.isalpha() else " " for c in text.lower()).split() if len(word) > 3}
             for text in texts]  # fmt: skip
    counts = Counter(word for words in split for word in sorted(words))
    words = [word for word, _ in counts.most_common(WORDS)]
    return np.array([[word in each for word in words] for each in split], float)


def verbs():
    """Meanings of verbs in WordNet, words of their definitions and their hypernyms: which of fifteen fields?"""
    text = (FOLDER / "usr/share/wordnet/data.verb").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    rows = [(line.split(), line.split("|")[1].split('"')[0]) for line in lines]
    place = {row[0]: k for k, (row, _) in enumerate(rows)}
    edges = [(k, place[row[at + 1]]) for k, (row, _) in enumerate(rows) for at, mark in enumerate(row)
             if mark == "@" and row[at + 2] == "v"]  # fmt: skip
    return of_words([text for _, text in rows]), codes([row[1] for row, _ in rows]), np.array(edges).T


def of_sklearn(name):
    table = getattr(datasets, f"load_{name}")()
    return table.data, table.target, near(StandardScaler().fit_transform(table.data), 8)


# name -> reader, whether of classes, known rows: a share of all, or a number per class
GRAPHS = {
    "NY leukaemia": (leukaemia, False, 0.6),
    "Boston values": (boston, False, 0.6),
    "county turnout 1980": (turnout, False, 0.4),
    "Ohio house prices": (houses, False, 0.4),
    "Ames house prices": (ames, False, 0.4),
    "rainfall": (rainfall, False, 0.6),
    "fulmars": (fulmars, False, 0.6),
    "Meuse zinc": (meuse, False, 0.6),
    "Jura rock": (jura, True, 0.4),
    "Mafragh plants": (mafragh, True, 0.6),
    "Lansing trees": (trees, True, 0.6),
    "causes of fires": (fires, True, 0.4),
    "Flare packages": (flare, True, 0.6),
    "drosophila neurons": (drosophila, True, 0.4),
    "mouse brain": (mice, True, 0.4),
    "airports": (airports, True, 0.4),
    "WordNet verbs": (verbs, True, 20),
    "wine": (lambda: of_sklearn("wine"), True, 10),
    "breast cancer": (lambda: of_sklearn("breast_cancer"), True, 10),
    "digits, 10 per class": (lambda: of_sklearn("digits"), True, 10),
}


def main(folder, out):
    global FOLDER
    FOLDER, arrays = Path(folder), {}
    for name, (read, classes, known) in GRAPHS.items():
        X, y, edges, *weight = read()
        arrays |= {f"{name}/X": np.asarray(X, float), f"{name}/y": np.asarray(y, int if classes else float)}
        arrays |= {f"{name}/edges": edges} | ({f"{name}/weight": weight[0]} if weight else {})
        print(json.dumps({"graph": name, "nodes": len(X), "columns": X.shape[1], "edges": edges.shape[1],
                          "empty": int(np.isnan(X).sum()), "classes": len(set(y)) if classes else 0}))  # fmt: skip
    np.savez_compressed(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
