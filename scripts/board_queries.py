"""Queries that boards share."""

from __future__ import annotations

from board_model import Query, Variable


def quantiles(family: str, labels: str = "") -> list[Query]:
    """Half and 99 of 100 take less."""
    names = "".join(f", {each}" for each in labels.split())
    legend = " ".join(["{{instance}}", *(f"{{{{{each}}}}}" for each in labels.split())])
    return [
        Query(
            f"histogram_quantile({share}, sum by (instance, le{names}) (rate({family}_bucket{{@}}[~])))",
            f"{legend} {name}",
        )
        for share, name in (("0.5", "p50"), ("0.99", "p99"))
    ]


def per_second(series: str, legend: str = "") -> Query:
    """A counter's rate at each target."""
    return Query(f"sum by (instance) (rate({series}[~]))", f"{{{{instance}}}} {legend}".strip())


def level(series: str, legend: str = "") -> Query:
    """A gauge's value at each target."""
    return Query(f"sum by (instance) ({series})", f"{{{{instance}}}} {legend}".strip())


def targets_of(series: str, name: str) -> list[Variable]:
    """The variables that `@` stands for."""
    return [
        Variable("job", "Job", f"label_values({series}, job)"),
        Variable("node", name, f'label_values({series}{{job=~"$job"}}, instance)'),
    ]
