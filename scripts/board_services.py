"""The panels of the boards of managers and indexers."""

from __future__ import annotations

from board_model import Board, Panel, Query, Row
from board_queries import level, per_second, quantiles, targets_of

NO_STORAGE = "No selected manager has a storage."
NO_GROUP = "No selected manager has an instance group."
NO_CALLS = "Nothing was asked in this time."
NO_REDIS = "No selected indexer has its index on a Redis server."
NO_PODS = "No selected indexer follows pods of Kubernetes."
NO_PUBLISHERS = "No selected indexer has publishers."


def share(part: str, whole: str, labels: str, legend: str) -> Query:
    """Of two counters."""
    return Query(
        f"sum by ({labels}) (rate({part}{{@}}[~])) / (sum by ({labels}) (rate({whole}{{@}}[~])) > 0)",
        legend,
    )


CALLS = Row(
    "Calls",
    [
        Panel(
            "Ready",
            "none",
            [level("cenote_manager_ready{@}")],
            "1 while a manager takes writes; it is 0 while it reads its journal.",
            "No manager answers: see the targets' state in Prometheus.",
            maximum=1,
        ),
        Panel(
            "Calls",
            "reqps",
            [Query("sum by (rpc) (rate(cenote_manager_requests_total{@}[~]))", "{{rpc}}")],
            "Calls a second that were answered.",
            NO_CALLS,
        ),
        Panel(
            "Answers by code",
            "reqps",
            [Query('sum by (code) (rate(cenote_manager_requests_total{@,code!="OK"}[~]))', "{{code}}")],
            "Answers a second that are not OK; SERVICE_NOT_READY and IO_ERROR are the manager's own troubles.",
            "All was answered with OK.",
        ),
        Panel(
            "Times of calls",
            "s",
            quantiles("cenote_manager_request_seconds"),
            "",
            NO_CALLS,
        ),
        Panel(
            "Slowest calls, p99",
            "s",
            [
                Query(
                    "topk(8, histogram_quantile(0.99, "
                    "sum by (rpc, le) (rate(cenote_manager_request_seconds_bucket{@}[~]))))",
                    "{{rpc}}",
                )
            ],
            "The calls that take longest: 99 of 100 are faster.",
            NO_CALLS,
        ),
        Panel(
            "Hit rate of lookups",
            "percentunit",
            [share("cenote_manager_lookup_hits_total", "cenote_manager_lookup_keys_total", "instance", "{{instance}}")],
            "Share of the keys that engines looked up which the answers had.",
            NO_CALLS,
            maximum=1,
        ),
    ],
)

SPACE = Row(
    "Groups and storages",
    [
        Panel(
            "Groups' use of their quotas",
            "percentunit",
            [
                Query(
                    "sum by (group) (cenote_manager_group_used_bytes{@}) "
                    "/ (sum by (group) (cenote_manager_group_quota_bytes{@}) > 0)",
                    "{{group}}",
                )
            ],
            "Share of its quota that a group takes, deletions under way included; near 1 its reclaim must keep up.",
            NO_GROUP,
            maximum=1,
        ),
        Panel(
            "Bytes being deleted",
            "bytes",
            [Query("sum by (group) (cenote_manager_group_deleting_bytes{@})", "{{group}}")],
            "Bytes whose deletion is under way; a level that only rises is a storage that does not delete.",
            NO_GROUP,
        ),
        Panel(
            "Keys of instances",
            "short",
            [
                Query(
                    "topk(16, sum by (exported_instance) (cenote_manager_instance_keys{@}))",
                    "{{exported_instance}}",
                )
            ],
            "Keys of the sixteen largest instances.",
            "No selected manager has an instance.",
        ),
        Panel(
            "Storages that work",
            "none",
            [
                Query("cenote_manager_storage_up{@}", "{{storage}} {{type}}"),
                Query("cenote_manager_storage_full{@} > 0", "{{storage}} {{type}} is full"),
            ],
            "1 while a storage is enabled and works; a storage that is full takes no new writes.",
            NO_STORAGE,
            maximum=1,
        ),
        Panel(
            "Used in storages",
            "bytes",
            [
                Query("sum by (storage) (cenote_manager_storage_used_bytes{@})", "{{storage}} used"),
                Query("sum by (storage) (cenote_manager_storage_free_bytes{@})", "{{storage}} free"),
            ],
            "Bytes of all groups in a storage, and bytes that are free there by its last probe.",
            NO_STORAGE,
        ),
        Panel(
            "Deletions",
            "short",
            [
                Query("sum by (storage) (cenote_manager_storage_deletion_batches{@})", "{{storage}} under way"),
                Query(
                    "sum by (storage) (increase(cenote_manager_storage_failed_deletions_total{@}[~]))",
                    "{{storage}} failed",
                ),
                level("cenote_manager_waiting_removals{@}", "waiting"),
            ],
            "Batches of deletions under way, deletions that failed and are repeated, and ranges that wait.",
            NO_STORAGE,
        ),
    ],
)

JOURNAL = Row(
    "Journal and sessions",
    [
        Panel(
            "Write sessions",
            "short",
            [level("cenote_manager_sessions{@}")],
            "Write sessions that are open; a level that only rises is clients that do not finish.",
        ),
        Panel(
            "Times of the journal",
            "s",
            quantiles("cenote_manager_journal_seconds"),
            "Times of the journal's batches; each write waits for one.",
            "Nothing was written in this time.",
        ),
        Panel(
            "Faults of the journal",
            "short",
            [
                per_second("cenote_manager_journal_failures_total{@}", "batches"),
                per_second("cenote_manager_recoveries_total{@}", "recoveries"),
                per_second("cenote_manager_damaged_rows_total{@}", "damaged rows"),
            ],
            "Batches a second that the journal did not take, recoveries, and rows that could not be read; 0 is good.",
        ),
        Panel(
            "Age of the figures",
            "s",
            [level("cenote_manager_usage_age_seconds{@}")],
            "Age of the figures of groups, instances and storages; more than a few seconds means that the journal's "
            "store hangs.",
        ),
        Panel(
            "Evicted blocks",
            "short",
            [
                per_second("cenote_manager_evicted_blocks_total{@}", "evicted"),
                per_second("cenote_manager_orphaned_blocks_total{@}", "with a block behind them"),
            ],
            "Blocks a second that were evicted, and those of them with a served block behind them, which is of no use "
            "then.",
        ),
        Panel(
            "Plug-ins",
            "short",
            [
                per_second("cenote_manager_plugin_starts_total{@}", "starts"),
                per_second("cenote_manager_plugin_failures_total{@}", "failures"),
            ],
            "Plug-ins a second that were started, and that were ended or did not start.",
        ),
    ],
)

QUESTIONS = Row(
    "Questions",
    [
        Panel(
            "Questions",
            "reqps",
            [Query("sum by (instance) (rate(cenote_indexer_question_seconds_count{@}[~]))", "{{instance}}")],
            "Questions for scores a second.",
            NO_CALLS,
        ),
        Panel(
            "Times of questions",
            "s",
            quantiles("cenote_indexer_question_seconds"),
            "",
            NO_CALLS,
        ),
        Panel(
            "Blocks that some pod has",
            "percentunit",
            [
                share(
                    "cenote_indexer_question_found_blocks_total",
                    "cenote_indexer_question_blocks_total",
                    "instance",
                    "{{instance}}",
                )
            ],
            "Share of the prompts' blocks that lie in the longest prefix that some pod has: the most that routing can "
            "win.",
            NO_CALLS,
            maximum=1,
        ),
        Panel(
            "Answers over HTTP",
            "reqps",
            [Query("sum by (code) (rate(cenote_indexer_http_answers_total{@}[~]))", "{{code}}")],
            "Answers a second by the class of their status; 5xx is the indexer's own trouble.",
            NO_CALLS,
        ),
        Panel(
            "Connections over HTTP",
            "short",
            [
                level("cenote_indexer_http_connections{@}", "open"),
                per_second("cenote_indexer_http_refused_total{@}", "refused"),
                per_second("cenote_indexer_http_displaced_total{@}", "displaced"),
            ],
            "Open connections, and those a second that found no room or were closed to make some.",
        ),
        Panel(
            "Texts",
            "short",
            [Query("sum by (outcome) (rate(cenote_indexer_texts_total{@}[~]))", "{{outcome}}")],
            "Prompts a second that came as texts, by outcome.",
            "No selected indexer has a tokenizer.",
        ),
    ],
)

EVENTS = Row(
    "Events and publishers",
    [
        Panel(
            "Publishers by state",
            "short",
            [Query("sum by (state) (cenote_indexer_publishers_by_state{@})", "{{state}}")],
            "",
            NO_PUBLISHERS,
            is_stacked=True,
        ),
        Panel(
            "Behind",
            "s",
            [
                Query(
                    "topk(16, max by (instance, publisher) (cenote_indexer_behind_seconds{@}))",
                    "{{instance}} {{publisher}}",
                )
            ],
            "For how long a batch of a publisher has been missing or waiting; 0 is good.",
            NO_PUBLISHERS,
        ),
        Panel(
            "Gaps and losses",
            "short",
            [
                Query(
                    f"sum by (publisher) (rate(cenote_indexer_{what}_total{{@}}[~])) > 0",
                    f"{{{{publisher}}}} {legend}",
                )
                for what, legend in (("gaps", "gaps"), ("lost_batches", "lost"), ("restarts", "began anew"))
            ],
            "Batches a second that were missing or cannot be had, and publishers that began anew.",
            "No batch was missing.",
        ),
        Panel(
            "Events",
            "short",
            [
                per_second("cenote_indexer_blocks_stored_total{@}", "stored"),
                per_second("cenote_indexer_blocks_removed_total{@}", "removed"),
            ],
            "Blocks a second that events have stored and removed.",
            NO_PUBLISHERS,
        ),
        Panel(
            "Refused blocks",
            "short",
            [Query("sum by (reason) (rate(cenote_indexer_blocks_refused_total{@}[~])) > 0", "{{reason}}")],
            "Blocks of events a second that were passed over, by reason; scores are too low for them.",
            "No block was passed over.",
        ),
        Panel(
            "Events that make no sense",
            "short",
            [
                Query("sum by (kind) (rate(cenote_indexer_events_bad_total{@}[~])) > 0", "{{kind}}"),
                per_second("cenote_indexer_batches_bad_total{@}", "batches"),
                per_second("cenote_indexer_messages_malformed_total{@}", "messages"),
            ],
            "Events, batches and messages a second that make no sense; an engine of another version, as a rule.",
        ),
    ],
)

INDEX = Row(
    "Index",
    [
        Panel(
            "Blocks by tier",
            "short",
            [Query("sum by (instance, tier) (cenote_indexer_blocks{@})", "{{instance}} {{tier}}")],
            "",
            "The index is empty, or on a Redis server.",
        ),
        Panel(
            "Memory",
            "bytes",
            [level("cenote_indexer_memory_bytes{@}")],
            "",
        ),
        Panel(
            "Evicted blocks",
            "short",
            [
                per_second("cenote_indexer_evicted_blocks_total{@}", "evicted"),
                per_second("cenote_indexer_evicted_held_blocks_total{@}", "that a pod had"),
            ],
            "Blocks a second that made room for others; those that a pod had make scores too low.",
        ),
        Panel(
            "Time of applying events",
            "percentunit",
            [per_second("cenote_indexer_apply_seconds_total{@}")],
            "Share of a processor that decoding and applying batches takes; at 1 the index falls behind.",
        ),
        Panel(
            "Redis server",
            "short",
            [
                level("cenote_indexer_redis_serving{@}", "serving"),
                per_second("cenote_indexer_redis_failures_total{@}", "failures"),
                per_second("cenote_indexer_redis_dropped_batches_total{@}", "dropped batches"),
                per_second("cenote_indexer_redis_unanswered_questions_total{@}", "empty answers"),
            ],
            "Whether the server answers; failures, dropped batches and empty answers a second.",
            NO_REDIS,
        ),
        Panel(
            "Pods of Kubernetes",
            "short",
            [
                level("cenote_indexer_discovered_pods{@}", "pods"),
                per_second("cenote_indexer_discovery_failures_total{@}", "failures"),
            ],
            "Pods that are followed, and lists and watches a second that broke off.",
            NO_PODS,
        ),
    ],
)

MANAGER_BOARD = Board(
    "cenote-manager",
    "Cenote managers",
    "Calls, groups, storages and the journal of cenote manager. Made by scripts/boards.py.",
    "service-metrics.md",
    targets_of("cenote_manager_ready", "Manager"),
    [CALLS, SPACE, JOURNAL],
)

INDEXER_BOARD = Board(
    "cenote-indexer",
    "Cenote indexers",
    "Questions, events and the index of cenote indexer. Made by scripts/boards.py.",
    "service-metrics.md",
    targets_of("cenote_indexer_publishers", "Indexer"),
    [QUESTIONS, EVENTS, INDEX],
)
