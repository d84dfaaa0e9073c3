"""Makes packaging/grafana: Grafana's boards of nodes, managers and indexers, from the tables of metrics in docs.

    scripts/boards.py --check    status 1 where a board is not what the tables and the panels give
    scripts/boards.py --write    makes the boards anew

Panels are in board_nodes.py and board_services.py. One whose expression names what no table has is refused, see
board_model.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from board_model import (
    ROOT,
    Board,
    Metrics,
    Panel,
    Variable,
    board_faults,
    metric_behind,
    read_metrics,
    spelled_out,
)
from board_nodes import NODE_BOARD
from board_services import INDEXER_BOARD, MANAGER_BOARD

BOARDS = (NODE_BOARD, MANAGER_BOARD, INDEXER_BOARD)

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


def panel_json(panel: Panel, metrics: Metrics, number: int, place: Mapping[str, int]) -> dict[str, Any]:
    first = metric_behind(panel.queries[0].series()[0], metrics)
    defaults: dict[str, Any] = {"unit": panel.unit, "noValue": panel.empty, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    options: dict[str, Any] = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.is_small:
        options = {
            "colorMode": "none",
            "graphMode": "none",
            "textMode": "value_and_name",
            "reduceOptions": {"calcs": ["lastNotNull"]},
        }
    else:
        fill = 30 if panel.is_stacked else 5
        stacking = {"mode": "normal" if panel.is_stacked else "none"}
        defaults["custom"] = {"fillOpacity": fill, "showPoints": "never", "stacking": stacking}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description or (first.summary if first else ""),
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": SOURCE,
                "expr": spelled_out(query.expression),
                "legendFormat": query.legend,
                "instant": panel.is_small,
                "range": not panel.is_small,
            }
            for position, query in enumerate(panel.queries)
        ],
    }


def panels_json(board: Board, metrics: Metrics) -> list[dict[str, Any]]:
    """Rows and panels from the top on. The panels of a collapsed row lie in it."""
    made: list[dict[str, Any]] = []
    number = height = 0
    for row in board.rows:
        number += 1
        head = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_collapsed,
            "gridPos": {"x": 0, "y": height, "w": WIDTH, "h": 1},
        }
        height += 1
        inner: list[dict[str, Any]] = []
        left = tallest = 0
        for panel in row.panels:
            number += 1
            width, size = (3, 4) if panel.is_small else (8, 8)
            if left + width > WIDTH:
                left, height, tallest = 0, height + tallest, 0
            inner.append(panel_json(panel, metrics, number, {"x": left, "y": height, "w": width, "h": size}))
            left, tallest = left + width, max(tallest, size)
        height += tallest
        made += [{**head, "panels": inner}] if row.is_collapsed else [{**head, "panels": []}, *inner]
    return made


def variable_json(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": "StandardVariableQuery"},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def text_of(board: Board, metrics: Metrics) -> str:
    """The file of a board."""
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }
    whole = {
        "uid": board.name,
        "title": board.title,
        "description": board.description,
        "tags": ["cenote"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "links": [{"type": "dashboards", "title": "Cenote", "tags": ["cenote"], "asDropdown": True, "keepTime": True}],
        "annotations": {"list": []},
        "templating": {"list": [datasource, *map(variable_json, board.variables)]},
        "panels": panels_json(board, metrics),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--write", action="store_true")
    options = parser.parse_args()
    status = 0
    for board in BOARDS:
        metrics = read_metrics(board.page)
        found = board_faults(board, metrics)
        text = "" if found else text_of(board, metrics)
        if options.write and not found:
            board.path.write_text(text)
        elif not found and (not board.path.exists() or board.path.read_text() != text):
            found = [f"{board.path.relative_to(ROOT)} is out of date; run scripts/boards.py --write"]
        for each in found:
            print(f"boards: {each}", file=sys.stderr)
        status = 1 if found else status
    return status


if __name__ == "__main__":
    sys.exit(main())
