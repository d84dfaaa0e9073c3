"""The panels of the board of nodes."""

from __future__ import annotations

from board_model import Board, Panel, Query, Row, Variable
from board_queries import level, per_second, quantiles, targets_of


def hit_ratio(unit: str, call: str, label: str = "exported_instance") -> Query:
    both = [
        f'sum by ({label}) (rate(cenote_instance_{what}_{unit}_total{{@kv,call="{call}"}}[~]))'
        for what in ("found", "looked_up")
    ]
    return Query(f"{both[0]} / ({both[1]} > 0)", f"{{{{{label}}}}}")


def hit_ratio_lower(unit: str) -> Query:
    """Hits of all tiers together."""
    in_dram = f'sum by (exported_instance) (rate(cenote_instance_found_{unit}_total{{@kv,call="match"}}[~]))'
    lower = f"sum by (exported_instance) (rate(cenote_instance_found_lower_{unit}_total{{@kv}}[~]))"
    asked = f'sum by (exported_instance) (rate(cenote_instance_looked_up_{unit}_total{{@kv,call="match"}}[~]))'
    return Query(f"({in_dram} + {lower}) / ({asked} > 0)", "{{exported_instance}} with lower tiers")


NO_LOOKUPS = "No engine has looked anything up in this time."
NO_NVME = "No selected node has an NVMe tier."
NO_REMOTE = "No selected node has a remote tier."
NO_DEVICE = "No selected node has a tier on a device."
NO_CLUSTER = "No selected node is in a cluster."
NO_RANKS = "No engine of the selected nodes has joined a group of ranks."

GLANCE = Row(
    "At a glance",
    [
        Panel(
            "Nodes",
            "none",
            [Query("count(cenote_uptime_seconds{@})", "nodes")],
            "Nodes that answer Prometheus now.",
            "No node answers: see the targets' state in Prometheus.",
            "stat",
        ),
        Panel(
            "Hit rate, tokens",
            "percentunit",
            [
                Query(
                    'sum(rate(cenote_instance_found_tokens_total{@kv,call="match"}[$__range])) '
                    '/ (sum(rate(cenote_instance_looked_up_tokens_total{@kv,call="match"}[$__range])) > 0)',
                    "tokens",
                )
            ],
            "Share of the tokens that engines asked for in the time shown which DRAM had.",
            NO_LOOKUPS,
            "stat",
        ),
        Panel(
            "DRAM in use",
            "percentunit",
            [Query("sum(cenote_dram_used_bytes{@}) / sum(cenote_dram_capacity_bytes{@})", "DRAM")],
            "Share of DRAM's capacity that blocks take; a full cache is the normal state.",
            kind="stat",
        ),
        Panel(
            "Sessions",
            "none",
            [Query("sum(cenote_sessions{@})", "sessions")],
            kind="stat",
        ),
        Panel(
            "Removals pending",
            "none",
            [
                Query("sum(cenote_nvme_path_pending_removals{@})", "disks"),
                Query("sum(cenote_cluster_unconfirmed_removals{@})", "nodes"),
                Query("sum(cenote_remote_backend_unconfirmed_removals{@})", "servers"),
            ],
            "Removals that a disk, another node or a server has not confirmed; anything but 0 for long wants a look.",
            "No selected node has a tier or a cluster that removals could wait for.",
            "stat",
        ),
        Panel(
            "Worker restarts",
            "none",
            [Query("sum(increase(cenote_worker_restarts_total{@}[$__range]))", "restarts")],
            "Workers that ended and were started anew in the time shown; 0 is good.",
            kind="stat",
        ),
        Panel(
            "Versions",
            "none",
            [
                Query(
                    "count by (version) (cenote_build_info{@} and on (job, instance) cenote_uptime_seconds{@})",
                    "{{version}}",
                )
            ],
            "Nodes by their version; more than one is normal during an upgrade only.",
            kind="stat",
        ),
        Panel(
            "Shortest uptime",
            "s",
            [Query("min(cenote_uptime_seconds{@})", "uptime")],
            "Time since the youngest of the selected nodes was started.",
            kind="stat",
        ),
    ],
)

HITS = Row(
    "Hits",
    [
        Panel(
            "Hit rate, tokens",
            "percentunit",
            [hit_ratio("tokens", "match"), hit_ratio_lower("tokens")],
            "Share of the tokens that engines asked for which were there, by instance: in DRAM, and in all tiers.",
            NO_LOOKUPS,
            maximum=1,
        ),
        Panel(
            "Hit rate, blocks",
            "percentunit",
            [hit_ratio("blocks", "match"), hit_ratio_lower("blocks")],
            "Share of the blocks that engines asked for which were there, by instance: in DRAM, and in all tiers.",
            NO_LOOKUPS,
            maximum=1,
        ),
        Panel(
            "Hit rate by node, tokens",
            "percentunit",
            [hit_ratio("tokens", "match", "instance")],
            "Share of the tokens that engines asked for which were in DRAM, by node; nodes far apart point at routing.",
            NO_LOOKUPS,
            maximum=1,
        ),
        Panel(
            "Tokens asked for and found",
            "short",
            [
                Query(f"sum by (exported_instance) (rate({series}[~]))", f"{{{{exported_instance}}}} {legend}")
                for series, legend in (
                    ('cenote_instance_looked_up_tokens_total{@kv,call="match"}', "asked for"),
                    ('cenote_instance_found_tokens_total{@kv,call="match"}', "found"),
                    ("cenote_instance_found_lower_tokens_total{@kv}", "found below"),
                )
            ],
            "Tokens a second that engines asked for, found in DRAM, and found in tiers below alone.",
            NO_LOOKUPS,
        ),
        Panel(
            "Blocks read",
            "short",
            [
                Query(f"sum by (exported_instance) (rate({series}[~]))", f"{{{{exported_instance}}}} {legend}")
                for series, legend in (
                    ('cenote_instance_looked_up_blocks_total{@kv,call="read"}', "wanted"),
                    ('cenote_instance_found_blocks_total{@kv,call="read"}', "read"),
                )
            ],
            "Blocks a second that engines asked to pin or copy, and those that were there; a gap means that blocks "
            "leave between the question and the read.",
            NO_LOOKUPS,
        ),
        Panel(
            "Hit rate of reads, blocks",
            "percentunit",
            [hit_ratio("blocks", "read")],
            "Share of the blocks to pin or copy that were there; the hit rate of engines that never ask first.",
            NO_LOOKUPS,
            maximum=1,
        ),
    ],
)

CURVES = Row(
    "What more or less DRAM would bring",
    [
        Panel(
            "Estimated hit rate by capacity",
            "percentunit",
            [Query("1 - cenote_instance_curve_miss_ratio{@kv}", "{{instance}} {{exported_instance}} ×{{times}}")],
            "Estimated share of blocks that would hit with so many times the present DRAM.",
            "No curve yet: optimize.mode is off, or too few requests were seen.",
            maximum=1,
        ),
        Panel(
            "Gain of twice the DRAM",
            "percentunit",
            [
                Query(
                    'cenote_instance_curve_miss_ratio{@kv,times="1"} '
                    '- ignoring (times) cenote_instance_curve_miss_ratio{@kv,times="2"}',
                    "{{instance}} {{exported_instance}}",
                )
            ],
            "Hit rate that a doubling of the capacity would add, as estimated; next to nothing means that DRAM is "
            "large enough.",
            "No curve yet: optimize.mode is off, or too few requests were seen.",
        ),
        Panel(
            "Loss with half the DRAM",
            "percentunit",
            [
                Query(
                    'cenote_instance_curve_miss_ratio{@kv,times="0.5"} '
                    '- ignoring (times) cenote_instance_curve_miss_ratio{@kv,times="1"}',
                    "{{instance}} {{exported_instance}}",
                )
            ],
            "Hit rate that half the capacity would cost, as estimated; next to nothing means that DRAM could be "
            "given to others.",
            "No curve yet: optimize.mode is off, or too few requests were seen.",
        ),
    ],
)

TIERS = Row(
    "Tiers",
    [
        Panel(
            "Use of capacity",
            "percentunit",
            [
                Query(
                    f"sum by (instance) ({used}{{@}}) / sum by (instance) ({capacity}{{@}})",
                    f"{{{{instance}}}} {tier}",
                )
                for tier, used, capacity in (
                    ("DRAM", "cenote_dram_used_bytes", "cenote_dram_capacity_bytes"),
                    ("NVMe", "cenote_nvme_used_bytes", "cenote_nvme_capacity_bytes"),
                    ("device", "cenote_gpu_used_bytes", "cenote_gpu_capacity_bytes"),
                )
            ],
            "Share of each tier's capacity that blocks take.",
            maximum=1,
        ),
        Panel(
            "Evictions",
            "short",
            [
                per_second("cenote_dram_evicted_total{@}", "DRAM"),
                per_second("cenote_nvme_evicted_total{@}", "NVMe"),
                per_second("cenote_gpu_evicted_total{@}", "device"),
            ],
            "Blocks a second that left a tier to make room.",
        ),
        Panel(
            "Blocks that left DRAM",
            "short",
            [
                per_second("cenote_dram_demoted_total{@}", "taken below"),
                per_second("cenote_dram_demotions_dropped_total{@}", "without a copy"),
                per_second("cenote_dram_copies_skipped_total{@}", "not copied at once"),
            ],
            "Blocks a second that the tier below took, that left without a copy there, and that it was to have at once "
            "and did not get; the last two should be next to 0.",
        ),
        Panel(
            "DRAM",
            "bytes",
            [
                level("cenote_dram_capacity_bytes{@}", "capacity"),
                level("cenote_dram_used_bytes{@}", "used"),
                level("cenote_dram_cached_bytes{@}", "hits"),
            ],
            "Memory that slabs may take, that of blocks in use, and that of blocks that are hits.",
        ),
        Panel(
            "DRAM blocks by state",
            "short",
            [Query("sum by (state) (cenote_dram_blocks{@})", "{{state}}")],
            "Blocks by state; many that are set aside or in writing for long point at engines that hang or die.",
            is_stacked=True,
        ),
        Panel(
            "DRAM by instance",
            "bytes",
            [Query("sum by (exported_instance) (cenote_instance_bytes{@kv})", "{{exported_instance}}")],
            "",
            "No instance has slabs.",
            is_stacked=True,
        ),
        Panel(
            "Groups' use of their quotas",
            "percentunit",
            [
                Query(
                    "sum by (instance, group) (cenote_group_used_bytes{@}) "
                    "/ (sum by (instance, group) (cenote_group_quota_bytes{@}) > 0)",
                    "{{instance}} {{group}}",
                )
            ],
            "Share of its quota that an instance group takes; at 1 it evicts its own blocks.",
            "No instance group has a quota.",
            maximum=1,
        ),
        Panel(
            "Expired and removed blocks",
            "short",
            [
                per_second("cenote_dram_expired_total{@}", "expired in DRAM"),
                per_second("cenote_nvme_expired_total{@}", "expired on NVMe"),
                per_second("cenote_dram_removed_total{@}", "removed"),
            ],
            "Blocks a second that outlived their group's time to live, and that a client or an operator removed.",
        ),
        Panel(
            "Policy at work",
            "none",
            [
                Query(
                    "cenote_instance_policy{@kv}",
                    "{{instance}} {{exported_instance}} {{policy}}",
                )
            ],
            "",
            'No selected node has dram.policy = "auto".',
        ),
    ],
)

TRANSFERS = Row(
    "Loads and stores",
    [
        Panel(
            "Stores",
            "short",
            [
                per_second("cenote_dram_commits_total{@}", "stored"),
                per_second("cenote_dram_duplicates_total{@}", "there already"),
            ],
            "Blocks a second that engines stored in DRAM, and those of them that were there already.",
        ),
        Panel(
            "Bytes written below",
            "Bps",
            [
                per_second("cenote_nvme_written_bytes_total{@}", "NVMe"),
                per_second("cenote_remote_put_bytes_total{@}", "remote"),
                per_second("cenote_gpu_written_bytes_total{@}", "device to DRAM"),
            ],
            "Bytes a second that left DRAM for a tier below, or a device for DRAM.",
        ),
        Panel(
            "Bytes loaded",
            "Bps",
            [
                per_second("cenote_nvme_read_bytes_total{@}", "NVMe"),
                per_second("cenote_remote_got_bytes_total{@}", "remote"),
                per_second("cenote_cluster_fetched_bytes_total{@}", "other nodes"),
                per_second("cenote_gpu_read_bytes_total{@}", "DRAM to device"),
            ],
            "Bytes a second that came up from a tier below or another node, or went from DRAM to a device.",
        ),
        Panel(
            "Blocks brought up",
            "short",
            [
                per_second("cenote_dram_promoted_total{@}", "came"),
                per_second("cenote_dram_promotions_failed_total{@}", "did not come"),
            ],
            "Blocks a second that were brought up from below, and those that were asked for and did not come.",
        ),
        Panel(
            "Batches of sessions",
            "s",
            quantiles("cenote_dram_batch_seconds"),
            "How long the tier was busy with a session's batch; a p99 of more than a few milliseconds slows all "
            "sessions.",
        ),
        Panel(
            "Puts that evict for themselves",
            "short",
            [
                per_second("cenote_dram_put_waits_total{@}", "puts"),
                per_second("cenote_dram_waits_total{@}", "batches that waited"),
            ],
            "Times a second that a put found no blank block, and that a batch waited for memory; eviction does not run "
            "ahead of the stores then.",
        ),
    ],
)

PREFETCH = Row(
    "Prefetch and its gate",
    [
        Panel(
            "Prefetches by end",
            "short",
            [Query("sum by (reason) (rate(cenote_prefetch_ended_total{@}[~]))", "{{reason}}")],
            "Prefetches a second by why they ended; `complete` and `absent` are good, `cannot_win` and `cut` mean that "
            "recomputing is faster.",
            is_stacked=True,
        ),
        Panel(
            "Gate",
            "percentunit",
            [
                Query(
                    'sum by (instance) (rate(cenote_prefetch_ended_total{@,reason="cannot_win"}[~])) '
                    "/ (sum by (instance) (rate(cenote_prefetch_ended_total{@}[~])) > 0)",
                    "{{instance}}",
                )
            ],
            "Share of prefetches that the gate ended since recomputing is faster than loading; 1 for long means that "
            "the tiers below bring nothing.",
            "No engine has asked for a prefetch in this time.",
            maximum=1,
        ),
        Panel(
            "Too slow, by tier",
            "short",
            [
                Query(
                    f"sum by (instance, tier) (rate(cenote_prefetch_source_{what}_total{{@}}[~]))",
                    f"{{{{instance}}}} {{{{tier}}}} {legend}",
                )
                for what, legend in (("cannot_win", "nothing loaded"), ("cut", "cut"))
            ],
            "Prefetches a second for which a tier below was too slow, or became so.",
            "No selected node has a tier below DRAM.",
        ),
        Panel(
            "Speed of tiers below",
            "Bps",
            [
                Query(
                    "sum by (instance, tier) (cenote_prefetch_source_bytes_per_second{@})",
                    "{{instance}} {{tier}}",
                )
            ],
            "",
            "No selected node has a tier below DRAM.",
        ),
        Panel(
            "Time saved and lost",
            "s",
            [
                per_second("cenote_prefetch_saved_seconds_total{@}", "saved"),
                per_second("cenote_prefetch_lost_seconds_total{@}", "lost"),
                per_second("cenote_prefetch_waited_seconds_total{@}", "waited"),
            ],
            "Seconds of computing that prefetches saved in each second, lost, and waited for; lost must stay far below "
            "saved.",
        ),
        Panel(
            "Blocks of prefetches",
            "short",
            [
                per_second("cenote_prefetch_blocks_wanted_total{@}", "wanted"),
                per_second("cenote_prefetch_blocks_loaded_total{@}", "loaded"),
                per_second("cenote_prefetch_blocks_lost_total{@}", "did not come"),
            ],
            "Blocks a second of prefetched chains, those that came up, and those that did not come.",
        ),
    ],
)

SESSIONS = Row(
    "Sessions and pins",
    [
        Panel(
            "Sessions",
            "short",
            [
                Query(
                    "sum by (instance, exported_instance) (cenote_instance_sessions{@kv})",
                    "{{instance}} {{exported_instance}}",
                )
            ],
            "",
            "No engine is attached.",
        ),
        Panel(
            "Pinned blocks",
            "short",
            [
                Query(
                    "sum by (instance, exported_instance) (cenote_instance_pinned_blocks{@kv})",
                    "{{instance}} {{exported_instance}}",
                )
            ],
            "Pins that sessions hold now; a level that only rises is an engine that does not let go.",
            "No engine is attached.",
        ),
        Panel(
            "Victims that were pinned",
            "percentunit",
            [
                Query(
                    "sum by (instance) (rate(cenote_dram_pinned_victims_total{@}[~])) "
                    "/ (sum by (instance) (rate(cenote_dram_victims_examined_total{@}[~])) > 0)",
                    "{{instance}}",
                )
            ],
            "Share of the blocks that eviction looked at which somebody held; near 1 eviction finds nothing.",
            "Nothing had to be evicted in this time.",
            maximum=1,
        ),
        Panel(
            "Refusals",
            "short",
            [
                per_second("cenote_server_turned_away_total{@}", "connections"),
                per_second("cenote_server_attaches_refused_total{@}", "attaches"),
                per_second("cenote_dram_no_space_total{@}", "no space"),
                per_second("cenote_dram_reserve_refused_total{@}", "beyond a share"),
                per_second("cenote_dram_pin_share_refusals_total{@}", "too much pinned"),
            ],
            "Connections, attaches and reservations a second that were refused; 0 is good.",
        ),
        Panel(
            "Memory taken back",
            "short",
            [
                per_second("cenote_dram_revoked_reservations_total{@}", "reservations"),
                per_second("cenote_dram_revoked_grants_total{@}", "blank blocks"),
                per_second("cenote_dram_reclaimed_blocks_total{@}", "dead clients"),
            ],
            "Reservations, blank blocks and blocks of dead clients that the node took back, a second.",
        ),
        Panel(
            "Connections",
            "short",
            [
                level("cenote_server_connections{@}", "connections"),
                level("cenote_server_descriptors_in_flight{@}", "unread descriptors"),
            ],
            "Connections to the nodes' sockets, and descriptors that clients have not read.",
        ),
    ],
)

NVME = Row(
    "NVMe",
    [
        Panel(
            "Paths that serve",
            "none",
            [Query("cenote_nvme_path_serving{@}", "{{instance}} {{path}}")],
            "",
            NO_NVME,
            maximum=1,
        ),
        Panel(
            "Use of paths",
            "percentunit",
            [
                Query(
                    "cenote_nvme_path_used_bytes{@} / (cenote_nvme_path_capacity_bytes{@} > 0)",
                    "{{instance}} {{path}}",
                )
            ],
            "Share of a path's space that blocks take.",
            NO_NVME,
            maximum=1,
        ),
        Panel(
            "Transfers",
            "s",
            quantiles("cenote_nvme_transfer_seconds", "what"),
            "",
            NO_NVME,
        ),
        Panel(
            "Errors of disks",
            "short",
            [
                Query("sum by (instance, path) (rate(cenote_nvme_path_errors_total{@}[~]))", "{{instance}} {{path}}"),
                per_second("cenote_nvme_checksum_errors_total{@}", "wrong bytes"),
                per_second("cenote_nvme_failed_saves_total{@}", "metadata"),
            ],
            "Errors, wrong blocks and failed writes of metadata a second; anything but 0 wants a look at the disk.",
            NO_NVME,
        ),
        Panel(
            "Blocks not written",
            "short",
            [
                per_second("cenote_nvme_dropped_total{@}", "dropped"),
                per_second("cenote_nvme_unadmitted_total{@}", "first time"),
            ],
            "Blocks a second that were dropped for want of room or after an error, and that were not admitted.",
            NO_NVME,
        ),
        Panel(
            "Fills a day",
            "none",
            [
                Query(
                    "sum by (instance) (rate(cenote_nvme_written_bytes_total{@}[1h])) * 86400 "
                    "/ sum by (instance) (cenote_nvme_capacity_bytes{@})",
                    "{{instance}}",
                )
            ],
            "How often a day the disk space for blocks is written over; compare it with the writes a day that the disk "
            "is rated for.",
            NO_NVME,
        ),
        Panel(
            "Removals pending",
            "short",
            [Query("cenote_nvme_path_pending_removals{@}", "{{instance}} {{path}}")],
            "",
            NO_NVME,
        ),
        Panel(
            "Bytes in flight",
            "bytes",
            [level("cenote_nvme_in_flight_bytes{@}")],
            "",
            NO_NVME,
        ),
    ],
    is_collapsed=True,
)

REMOTE = Row(
    "Remote tier",
    [
        Panel(
            "Backends that answer",
            "none",
            [
                Query("cenote_remote_backend_serving{@}", "{{instance}} {{backend}}"),
                Query("cenote_remote_backend_breaker_closed{@}", "{{instance}} {{backend}} without restraint"),
            ],
            "1 when a backend answers, and when it is asked without restraint; else 0.",
            NO_REMOTE,
            maximum=1,
        ),
        Panel(
            "Transfers",
            "s",
            quantiles("cenote_remote_transfer_seconds", "what"),
            "",
            NO_REMOTE,
        ),
        Panel(
            "Bytes",
            "Bps",
            [
                per_second("cenote_remote_put_bytes_total{@}", "put"),
                per_second("cenote_remote_got_bytes_total{@}", "got"),
            ],
            "Bytes a second that were put to backends and got from them.",
            NO_REMOTE,
        ),
        Panel(
            "Hits and misses",
            "short",
            [
                per_second("cenote_remote_got_total{@}", "got"),
                per_second("cenote_remote_misses_total{@}", "not there"),
            ],
            "Blocks a second that backends had, and that were asked for and not there.",
            NO_REMOTE,
        ),
        Panel(
            "Blocks not put, and failures",
            "short",
            [
                per_second("cenote_remote_dropped_total{@}", "not asked"),
                per_second("cenote_remote_full_total{@}", "full"),
                per_second("cenote_remote_unreachable_total{@}", "no answer"),
                per_second("cenote_remote_wrong_total{@}", "wrong bytes"),
                per_second("cenote_remote_kept_back_total{@}", "may not leave"),
            ],
            "Blocks a second that were not put, by why, transfers without an answer, and wrong values.",
            NO_REMOTE,
        ),
        Panel(
            "Removals that are not confirmed",
            "short",
            [
                Query("cenote_remote_backend_unconfirmed_removals{@}", "{{instance}} {{backend}}"),
            ],
            "",
            NO_REMOTE,
        ),
    ],
    is_collapsed=True,
)

DEVICE = Row(
    "Devices",
    [
        Panel(
            "Devices that serve",
            "none",
            [Query("cenote_gpu_ready{@}", "{{instance}} {{device}}")],
            "",
            NO_DEVICE,
            maximum=1,
        ),
        Panel(
            "Device memory",
            "bytes",
            [
                Query(f"cenote_gpu_{what}_bytes{{@}}", f"{{{{instance}}}} {{{{device}}}} {what}")
                for what in ("capacity", "used", "cached")
            ],
            "Device memory that slabs may take, that of blocks in use, and that of hits.",
            NO_DEVICE,
        ),
        Panel(
            "Copies",
            "Bps",
            [
                Query(
                    f"sum by (instance, device) (rate(cenote_gpu_{what}_bytes_total{{@}}[~]))",
                    f"{{{{instance}}}} {{{{device}}}} {legend}",
                )
                for what, legend in (("written", "to DRAM"), ("read", "from DRAM"))
            ],
            "Bytes a second between devices and DRAM.",
            NO_DEVICE,
        ),
        Panel(
            "Blocks that did not arrive",
            "short",
            [
                Query(
                    f"sum by (instance, device) (rate(cenote_gpu_{what}_total{{@}}[~]))",
                    f"{{{{instance}}}} {{{{device}}}} {legend}",
                )
                for what, legend in (
                    ("demotions_dropped", "no copy in DRAM"),
                    ("dropped", "not whole in DRAM"),
                    ("missing", "in no tier"),
                    ("failed", "copy failed"),
                )
            ],
            "Blocks a second that DRAM did not take or did not have, and copies that a device did not carry out.",
            NO_DEVICE,
        ),
    ],
    is_collapsed=True,
)

CLUSTER = Row(
    "Cluster",
    [
        Panel(
            "Nodes that can be used",
            "none",
            [
                level("cenote_cluster_live{@}", "live"),
                Query("sum by (instance) (cenote_cluster_known{@}) + 1", "{{instance}} known"),
                level("cenote_cluster_write_offs{@}", "written off"),
            ],
            "Nodes that can be used, those that are known (both with the node itself), and those that are written off.",
            NO_CLUSTER,
        ),
        Panel(
            "Peers",
            "none",
            [Query("cenote_cluster_peer_live{@}", "{{instance}} sees {{peer}}")],
            "",
            NO_CLUSTER,
            maximum=1,
        ),
        Panel(
            "Round trips",
            "s",
            [Query("cenote_cluster_peer_round_trip_seconds{@} > 0", "{{instance}} to {{peer}}")],
            "",
            NO_CLUSTER,
        ),
        Panel(
            "Blocks between nodes",
            "Bps",
            [
                per_second("cenote_cluster_fetched_bytes_total{@}", "fetched"),
                per_second("cenote_cluster_offered_bytes_total{@}", "offered"),
                per_second("cenote_cluster_lent_bytes_total{@}", "lent"),
            ],
            "Bytes of blocks a second that were got from other nodes, that these took, and that were sent to those who "
            "asked.",
            NO_CLUSTER,
        ),
        Panel(
            "Blocks that did not come",
            "short",
            [
                per_second("cenote_cluster_missed_total{@}", "not there"),
                per_second("cenote_cluster_unanswered_total{@}", "no answer"),
                per_second("cenote_cluster_not_hosted_total{@}", "not stored"),
                per_second("cenote_cluster_wrong_total{@}", "wrong bytes"),
            ],
            "Blocks a second that another node did not have, did not answer for, could not be stored, or were wrong.",
            NO_CLUSTER,
        ),
        Panel(
            "Removals pending",
            "short",
            [
                level("cenote_cluster_unconfirmed_removals{@}", "removals"),
                level("cenote_cluster_awaited_nodes{@}", "nodes awaited"),
            ],
            "Removals that another node has not confirmed, and the nodes that they wait for.",
            NO_CLUSTER,
        ),
        Panel(
            "Changes of membership",
            "short",
            [
                per_second("cenote_cluster_joined_total{@}", "came"),
                per_second("cenote_cluster_suspected_total{@}", "fell silent"),
                per_second("cenote_cluster_recovered_total{@}", "heard again"),
                per_second("cenote_cluster_lost_total{@}", "lost"),
                per_second("cenote_cluster_greetings_refused_total{@}", "refused"),
            ],
            "Nodes a second that came, fell silent, were heard again, were lost, or were refused.",
            NO_CLUSTER,
        ),
        Panel(
            "Groups of ranks",
            "none",
            [
                level("cenote_consensus_groups{@}", "groups"),
                level("cenote_consensus_formed{@}", "complete"),
                level("cenote_consensus_open{@}", "open questions"),
            ],
            "Groups with a rank on a node, those with all their ranks, and questions that wait.",
            NO_RANKS,
        ),
        Panel(
            "Epochs of groups",
            "short",
            [
                per_second("cenote_consensus_formed_total{@}", "began"),
                per_second("cenote_consensus_lost_total{@}", "ended"),
                per_second("cenote_consensus_overdue_total{@}", "questions overdue"),
                per_second("cenote_consensus_too_old_total{@}", "questions too old"),
            ],
            "Epochs of groups of ranks a second that began and ended, and questions that ended one or came too late.",
            NO_RANKS,
        ),
        Panel(
            "Handover",
            "short",
            [
                level("cenote_handover_published{@}", "published requests"),
                level("cenote_handover_followers{@}", "followers"),
            ],
            "Requests whose blocks are published for others to follow, and who waits for them.",
        ),
    ],
    is_collapsed=True,
)

ERRORS = Row(
    "Errors and drops",
    [
        Panel(
            "Errors",
            "short",
            [
                per_second("cenote_worker_exceptions_total{@}", "exceptions"),
                per_second("cenote_server_failures_total{@}", "requests"),
                per_second("cenote_dram_checksum_errors_total{@}", "wrong bytes in DRAM"),
                per_second("cenote_nvme_checksum_errors_total{@}", "wrong bytes on NVMe"),
                per_second("cenote_nvme_io_errors_total{@}", "NVMe transfers"),
                per_second("cenote_remote_wrong_total{@}", "wrong bytes from a backend"),
                per_second("cenote_cluster_wrong_total{@}", "wrong bytes of other nodes"),
                per_second("cenote_cluster_bad_frames_total{@}", "frames that make no sense"),
            ],
            "Faults a second; each of them should be 0.",
        ),
        Panel(
            "Drops",
            "short",
            [
                per_second("cenote_dram_demotions_dropped_total{@}", "blocks without a copy"),
                per_second("cenote_nvme_dropped_total{@}", "blocks not written"),
                per_second("cenote_remote_dropped_total{@}", "blocks not put"),
                per_second("cenote_dram_touches_dropped_total{@}", "uses"),
                per_second("cenote_curve_requests_dropped_total{@}", "requests of curves"),
                Query(
                    "sum by (instance, reason) (rate(cenote_trace_spans_dropped_total{@}[~]))",
                    "{{instance}} spans, {{reason}}",
                ),
                per_second("cenote_log_dropped_total{@}", "lines of the log"),
            ],
            "What was left out a second since there was too much of it, or no room.",
        ),
        Panel(
            "Wrong blocks by group",
            "short",
            [
                Query(
                    "sum by (instance, group) (rate(cenote_group_wrong_blocks_total{@}[~]))",
                    "{{instance}} {{group}}",
                )
            ],
            "",
        ),
        Panel(
            "Sessions ended for wrong blocks",
            "short",
            [per_second("cenote_dram_sessions_ended_total{@}")],
            "",
        ),
    ],
)

WORKER = Row(
    "Memory, worker and restarts",
    [
        Panel(
            "Populated memory",
            "percentunit",
            [
                Query(
                    "sum by (instance) (cenote_dram_populated_bytes{@}) "
                    "/ (sum by (instance) (cenote_dram_populate_total_bytes{@}) > 0)",
                    "{{instance}}",
                )
            ],
            "Share of the memory for slabs that is touched; it reaches 1 after a start unless memory is short or "
            "dram.populate is off.",
            maximum=1,
        ),
        Panel(
            "Memory of slabs",
            "bytes",
            [
                level("cenote_dram_assigned_bytes{@}", "slabs"),
                level("cenote_dram_ready_bytes{@}", "ready"),
            ],
            "Memory of slabs, and memory that is touched and no slab yet.",
        ),
        Panel(
            "On its way",
            "bytes",
            [
                level("cenote_dram_writing_bytes{@}", "to the tier below"),
                level("cenote_dram_loading_bytes{@}", "from below"),
                level("cenote_prefetch_held_bytes{@}", "kept for clients"),
            ],
            "Memory of blocks that are being written below or loaded, and that is kept from eviction for prefetches.",
        ),
        Panel(
            "Restarts and upgrades",
            "none",
            [
                Query("sum by (instance) (increase(cenote_worker_restarts_total{@}[~]))", "{{instance}} restarts"),
            ],
            "Workers that ended and were started anew; after an upgrade the panel Versions shows the new version "
            "instead.",
        ),
        Panel(
            "Uptime",
            "s",
            [level("cenote_uptime_seconds{@}")],
            "",
        ),
        Panel(
            "Queued messages",
            "short",
            [level("cenote_queued_messages{@}")],
            "Messages that wait in the inboxes of the worker's actors; next to 0 beside an idle node, and not rising.",
        ),
    ],
)


NODE_BOARD = Board(
    "cenote",
    "Cenote nodes",
    "Hits, tiers, transfers, sessions, cluster and errors of Cenote's nodes. Made by scripts/boards.py.",
    "metrics.md",
    [
        *targets_of("cenote_uptime_seconds", "Node"),
        Variable(
            "kv",
            "KV instance",
            'label_values(cenote_instance_blocks{job=~"$job",instance=~"$node"}, exported_instance)',
        ),
    ],
    [GLANCE, HITS, CURVES, TIERS, TRANSFERS, PREFETCH, SESSIONS, NVME, REMOTE, DEVICE, CLUSTER, ERRORS, WORKER],
)
