#include "config/schema.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "config/binding.hpp"
#include "config/nearest.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::config {
namespace {

using enum value_type;

constexpr std::array keys{
    bound<&node_config::node, &node_section::socket>(
        {.name = "node.socket",
         .type = string,
         .about = "Unix socket at which engines attach. Empty: `cenote.sock` in the runtime directory."}),
    bound<&node_config::node, &node_section::runtime_dir>(
        {.name = "node.runtime_dir",
         .type = string,
         .about = "Directory of the socket, the lock file and what was measured of copies. Empty: "
                  "`$XDG_RUNTIME_DIR/cenote`; else `/run/cenote` "
                  "for root, `/tmp/cenote-<uid>` for others."}),
    bound<&node_config::node, &node_section::threads>(
        {.name = "node.threads",
         .type = integer,
         .unit = "threads",
         .fallback = "0",
         .minimum = "0",
         .maximum = "1024",
         .about = "Threads that run actors, at least 2. 0: chosen from the machine."}),
    bound<&node_config::node, &node_section::drain_timeout>(
        {.name = "node.drain_timeout",
         .type = duration,
         .fallback = "5s",
         .minimum = "0s",
         .maximum = "10m",
         .reloadable = true,
         .about = "How long a stopping node waits for operations under way."}),
    bound<&node_config::node, &node_section::flush_timeout>(
        {.name = "node.flush_timeout",
         .type = duration,
         .fallback = "20s",
         .minimum = "0s",
         .maximum = "1h",
         .reloadable = true,
         .about = "How long a stopping node writes down blocks that DRAM alone has, most recently used first, to the "
                  "tier that takes what leaves DRAM. What is not written by then is lost; the log counts it. 0: "
                  "nothing is written."}),
    bound<&node_config::node, &node_section::stop_limit>(
        {.name = "node.stop_limit",
         .type = duration,
         .fallback = "0s",
         .minimum = "0s",
         .maximum = "24h",
         .about = "How long what stops this node waits before it kills it: the grace period of a pod, the stop timeout "
                  "of a container. Nothing waits by it: `cenote doctor`, `config check` and the start compare it with "
                  "what a stop in order needs. 0s: not known here; under systemd the unit has it."}),
    bound<&node_config::node, &node_section::hang_timeout>(
        {.name = "node.hang_timeout",
         .type = duration,
         .fallback = "30s",
         .minimum = "0s",
         .maximum = "1h",
         .reloadable = true,
         .about = "A worker of which a part is silent for so long is replaced; at least 1s. 0: never, for work "
                  "with a debugger."}),
    bound<&node_config::node, &node_section::max_sessions>({.name = "node.max_sessions",
                                                            .type = integer,
                                                            .unit = "sessions",
                                                            .fallback = "256",
                                                            .minimum = "1",
                                                            .maximum = "4096",
                                                            .about = "Sessions that may be attached at once."}),
    bound<&node_config::dram, &dram_section::capacity>(
        {.name = "dram.capacity",
         .type = bytes,
         .fallback = "1GiB",
         .minimum = "1MiB",
         .maximum = "1PiB",
         .about = "Memory of the DRAM tier's slabs. Also bounded by the machine's memory and the cgroup's limit."}),
    bound<&node_config::dram, &dram_section::policy>(
        {.name = "dram.policy",
         .type = choice,
         .fallback = "auto",
         .words = eviction::choices_of_requests,
         .reloadable = true,
         .about = "Which blocks are evicted first; see policies.md. A change keeps what is cached."}),
    bound<&node_config::dram, &dram_section::grants_in_capacity>(
        {.name = "dram.grants_in_capacity",
         .type = boolean,
         .fallback = "true",
         .about = "Count blank blocks in the hands of sessions as part of the capacity. Else only cached blocks "
                  "count, exactly, and memory may exceed the capacity by an eighth and two slabs."}),
    bound<&node_config::dram, &dram_section::high_water>(
        {.name = "dram.high_water",
         .type = ratio,
         .fallback = "0.97",
         .minimum = "0.1",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of the capacity above which eviction starts, ahead of need."}),
    bound<&node_config::dram, &dram_section::low_water>(
        {.name = "dram.low_water",
         .type = ratio,
         .fallback = "0.94",
         .minimum = "0.1",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of the capacity at which eviction stops; not above `dram.high_water`."}),
    bound<&node_config::dram, &dram_section::populate>(
        {.name = "dram.populate",
         .type = boolean,
         .fallback = "true",
         .about = "Take and touch all memory of `dram.capacity` from the start on, in the background, so that no "
                  "put or load pays for page faults. Else slabs take theirs as they are needed."}),
    bound<&node_config::dram, &dram_section::huge_pages>(
        {.name = "dram.huge_pages",
         .type = choice,
         .fallback = "auto",
         .about = "Use huge pages for slabs where the machine offers them."}),
    bound<&node_config::dram, &dram_section::numa_node>({.name = "dram.numa_node",
                                                         .type = integer,
                                                         .unit = "NUMA node",
                                                         .fallback = "-1",
                                                         .minimum = "-1",
                                                         .maximum = "1023",
                                                         .about = "Bind slabs to this NUMA node. -1: no binding."}),
    bound<&node_config::dram, &dram_section::integrity>(
        {.name = "dram.integrity",
         .type = choice,
         .fallback = "leave",
         .about = "When a block's checksum is taken: as it leaves DRAM, or as it is committed."}),
    bound<&node_config::dram, &dram_section::slab_size>(
        {.name = "dram.slab_size",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1GiB",
         .about = "Size of a slab, 64KiB or more and not above `dram.capacity`. 0: chosen from the "
                  "capacity and block sizes."}),
    bound<&node_config::nvme, &nvme_section::paths>(
        {.name = "nvme.paths",
         .type = string_list,
         .fallback = "[]",
         .about = "Directories of the NVMe tier, one a device; blocks are striped over them. Empty: no such tier."}),
    bound<&node_config::nvme, &nvme_section::require_mount>(
        {.name = "nvme.require_mount",
         .type = boolean,
         .fallback = "false",
         .about = "Refuse a path on the root file system: that of a disk which is not mounted, for example."}),
    bound<&node_config::nvme, &nvme_section::capacity>(
        {.name = "nvme.capacity",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1PiB",
         .about = "Disk space of all `nvme.paths` together, metadata included; a hard bound. At least 64MiB a path."}),
    bound<&node_config::nvme, &nvme_section::ingest>(
        {.name = "nvme.ingest",
         .type = choice,
         .fallback = "evicted",
         .about =
             "What is written down: nothing (what is there is read), every block as it is stored, blocks that were "
             "read `nvme.hot_accesses` times, or blocks that leave DRAM. What leaves without a copy goes to the "
             "first tier that is `evicted`, or else to the first one that is not `none`."}),
    bound<&node_config::nvme, &nvme_section::hot_accesses>(
        {.name = "nvme.hot_accesses",
         .type = integer,
         .unit = "reads",
         .fallback = "2",
         .minimum = "1",
         .maximum = "65535",
         .about = "With `nvme.ingest = hot`: the read at which a block is written down."}),
    bound<&node_config::nvme, &nvme_section::keep_copy>(
        {.name = "nvme.keep_copy",
         .type = boolean,
         .fallback = "true",
         .about = "Keep the copy on NVMe when a block is brought up to DRAM."}),
    bound<&node_config::nvme, &nvme_section::policy>({.name = "nvme.policy",
                                                      .type = choice,
                                                      .fallback = "lru",
                                                      .words = eviction::choices_of_blocks,
                                                      .reloadable = true,
                                                      .about = "Which blocks of the NVMe tier are evicted first."}),
    bound<&node_config::nvme, &nvme_section::high_water>(
        {.name = "nvme.high_water",
         .type = ratio,
         .fallback = "1",
         .minimum = "0.1",
         .maximum = "1",
         .about =
             "Share of the space above which the NVMe tier evicts ahead of need. 1: only when a block needs room."}),
    bound<&node_config::nvme, &nvme_section::low_water>(
        {.name = "nvme.low_water",
         .type = ratio,
         .fallback = "0.95",
         .minimum = "0.1",
         .maximum = "1",
         .about = "Share of the space at which that ends; not above `nvme.high_water`."}),
    bound<&node_config::nvme, &nvme_section::admission>(
        {.name = "nvme.admission",
         .type = choice,
         .fallback = "always",
         .about = "second_sight: a block is written down only when it leaves DRAM for the second time."}),
    bound<&node_config::nvme, &nvme_section::write_window>(
        {.name = "nvme.write_window",
         .type = bytes,
         .fallback = "256MiB",
         .minimum = "64KiB",
         .maximum = "64GiB",
         .about = "Bytes that may be on their way down at once. What does not fit is dropped and counted."}),
    bound<&node_config::nvme, &nvme_section::write_ahead>(
        {.name = "nvme.write_ahead",
         .type = ratio,
         .fallback = "0.1",
         .minimum = "0",
         .maximum = "0.9",
         .about = "Share of DRAM whose oldest blocks are kept written down, so that a burst of puts drops none."}),
    bound<&node_config::nvme, &nvme_section::read_window>({.name = "nvme.read_window",
                                                           .type = bytes,
                                                           .fallback = "256MiB",
                                                           .minimum = "64KiB",
                                                           .maximum = "64GiB",
                                                           .about = "Bytes that may be on their way up at once."}),
    bound<&node_config::nvme, &nvme_section::engine>(
        {.name = "nvme.engine",
         .type = choice,
         .fallback = "auto",
         .about = "How disks are read and written. auto: io_uring, or threads where it is forbidden."}),
    bound<&node_config::nvme, &nvme_section::queue_depth>({.name = "nvme.queue_depth",
                                                           .type = integer,
                                                           .unit = "operations",
                                                           .fallback = "32",
                                                           .minimum = "1",
                                                           .maximum = "1024",
                                                           .about = "The most operations under way on one path."}),
    bound<&node_config::remote, &remote_section::backends>(
        {.name = "remote.backends",
         .type = string_list,
         .fallback = "[]",
         .about =
             "Places outside this machine that keep blocks, in the order in which they are asked: `peers`, the other "
             "nodes of the cluster; `redis://[user@]host:port[,host:port…][/db][?prefix=…]`, the same with `rediss://` "
             "for TLS, where `?ca=FILE&cert=FILE&key=FILE&name=HOST` may follow, or `unix:///path[?db=…&prefix=…]` "
             "(Redis or Valkey). Empty: no such tier."}),
    bound<&node_config::remote, &remote_section::auth_file>(
        {.name = "remote.auth_file",
         .type = string,
         .about = "File with `user:password` or `password` for the backends, which others may not read. Empty: none."}),
    bound<&node_config::remote, &remote_section::state_dir>(
        {.name = "remote.state_dir",
         .type = string,
         .about =
             "Directory in which this node remembers which instances were cleared. Empty: `$STATE_DIRECTORY`; else "
             "`/var/lib/cenote` for root, `$XDG_STATE_HOME/cenote` or `~/.local/state/cenote` for others."}),
    bound<&node_config::remote, &remote_section::ingest>(
        {.name = "remote.ingest",
         .type = choice,
         .fallback = "all",
         .about =
             "What is put there: nothing (what others put is read), every block as it is stored, blocks that were read "
             "`remote.hot_accesses` times, or blocks that leave DRAM and that no NVMe tier takes. For what leaves "
             "without a copy see `nvme.ingest`."}),
    bound<&node_config::remote, &remote_section::hot_accesses>(
        {.name = "remote.hot_accesses",
         .type = integer,
         .unit = "reads",
         .fallback = "2",
         .minimum = "1",
         .maximum = "65535",
         .about = "With `remote.ingest = hot`: the read at which a block is put there."}),
    bound<&node_config::remote, &remote_section::keep_copy>(
        {.name = "remote.keep_copy",
         .type = boolean,
         .fallback = "true",
         .about = "Count on the copy there when a block is brought up to DRAM: it may leave again without being put."}),
    bound<&node_config::remote, &remote_section::write_window>(
        {.name = "remote.write_window",
         .type = bytes,
         .fallback = "64MiB",
         .minimum = "64KiB",
         .maximum = "64GiB",
         .about = "Bytes that may be on their way there at once. What does not fit is dropped and counted."}),
    bound<&node_config::remote, &remote_section::read_window>(
        {.name = "remote.read_window",
         .type = bytes,
         .fallback = "256MiB",
         .minimum = "64KiB",
         .maximum = "64GiB",
         .about = "Bytes that may be on their way from there at once."}),
    bound<&node_config::remote, &remote_section::replicas>({.name = "remote.replicas",
                                                            .type = integer,
                                                            .unit = "nodes",
                                                            .fallback = "1",
                                                            .minimum = "1",
                                                            .maximum = "2",
                                                            .about =
                                                                "With `peers`: how many nodes a block belongs to. 2: "
                                                                "it survives the death of one of them, and takes twice "
                                                                "the room."}),
    bound<&node_config::remote, &remote_section::peer_window>(
        {.name = "remote.peer_window",
         .type = bytes,
         .fallback = "64MiB",
         .minimum = "64KiB",
         .maximum = "64GiB",
         .about = "With `peers`: bytes that may be on their way from one other node at once, and as many to it."}),
    bound<&node_config::remote, &remote_section::timeout>(
        {.name = "remote.timeout",
         .type = duration,
         .fallback = "2s",
         .minimum = "50ms",
         .maximum = "8s",
         .about = "Within this each transfer and removal ends, whatever the backends do."}),
    bound<&node_config::remote, &remote_section::lookup_timeout>(
        {.name = "remote.lookup_timeout",
         .type = duration,
         .fallback = "50ms",
         .minimum = "1ms",
         .maximum = "8s",
         .about = "How long a prefetch waits to hear what is there; what is not said by then counts as absent."}),
    bound<&node_config::cluster, &cluster_section::name>(
        {.name = "cluster.name",
         .type = string,
         .about = "This node's name among others, which it keeps when it restarts: 1 to 64 letters, digits, `.`, `_`, "
                  "`-`. Empty: the node is alone."}),
    bound<&node_config::cluster, &cluster_section::id>(
        {.name = "cluster.id",
         .type = string,
         .fallback = "cenote",
         .about = "The cluster's name, of the same form; nodes of another one are refused."}),
    bound<&node_config::cluster, &cluster_section::listen>(
        {.name = "cluster.listen",
         .type = string,
         .fallback = "127.0.0.1:0",
         .about = "Address and port at which other nodes reach this one; port 0: any. Off loopback it needs "
                  "`cluster.secret_file` and `cluster.trusted_network`."}),
    bound<&node_config::cluster, &cluster_section::seeds>(
        {.name = "cluster.seeds",
         .type = string_list,
         .fallback = "[]",
         .about =
             "Addresses (host:port) of nodes that know the others; this one's own may be among them. A name stands for "
             "all of its addresses, and is looked up again every few seconds."}),
    bound<&node_config::cluster, &cluster_section::ports>(
        {.name = "cluster.ports",
         .type = string,
         .about = "Ports for the node's other sockets, `first-last`, at least 4 of them, so that a firewall's rule can "
                  "name them. Empty: any."}),
    bound<&node_config::cluster, &cluster_section::secret_file>(
        {.name = "cluster.secret_file",
         .type = string,
         .about = "File with what the nodes share to know each other, 16 to 4096 bytes, readable by its owner only; "
                  "see cluster.md. Empty, on loopback only: `cluster-secret` in the directory that `remote.state_dir` "
                  "stands for by default, which the first node of a user makes for all of that user's."}),
    bound<&node_config::cluster, &cluster_section::trusted_network>(
        {.name = "cluster.trusted_network",
         .type = boolean,
         .fallback = "false",
         .about = "Off loopback: your word that nobody but the nodes can read or change what passes between them; "
                  "whoever can is trusted with this node's memory; see cluster.md."}),
    bound<&node_config::cluster, &cluster_section::beat>(
        {.name = "cluster.beat",
         .type = duration,
         .fallback = "200ms",
         .minimum = "20ms",
         .maximum = "10s",
         .about = "How often a node says to each other one that it is there."}),
    bound<&node_config::cluster, &cluster_section::suspect_after>(
        {.name = "cluster.suspect_after",
         .type = duration,
         .fallback = "800ms",
         .minimum = "40ms",
         .maximum = "1m",
         .about = "A node that is silent for so long is not used; at least two beats."}),
    bound<&node_config::cluster, &cluster_section::gone_after>(
        {.name = "cluster.gone_after",
         .type = duration,
         .fallback = "4s",
         .minimum = "40ms",
         .maximum = "10m",
         .about = "After so long a silence its link is closed; not less than `cluster.suspect_after`."}),
    bound<&node_config::cluster, &cluster_section::settle>(
        {.name = "cluster.settle",
         .type = duration,
         .fallback = "5m",
         .minimum = "0s",
         .maximum = "24h",
         .about = "After a node came or went: for how long the node that a block belonged to before is asked, too."}),
    bound<&node_config::cluster, &cluster_section::weight>(
        {.name = "cluster.weight",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1PiB",
         .about = "How much the node holds beside others. 0: `dram.capacity` and `nvme.capacity`."}),
    bound<&node_config::cluster, &cluster_section::copies>(
        {.name = "cluster.copies",
         .type = ratio,
         .fallback = "0.05",
         .minimum = "0",
         .maximum = "1",
         .about =
             "Share of DRAM for copies of blocks that belong to other nodes, which have them. Beyond it, those that "
             "were not used for longest leave before all other blocks. 1: they compete with the others."}),
    bound<&node_config::cluster, &cluster_section::guest_share>(
        {.name = "cluster.guest_share",
         .type = ratio,
         .fallback = "0.9",
         .minimum = "0",
         .maximum = "1",
         .about =
             "Share of DRAM for blocks that other nodes store here, where they belong. Beyond it, those that were not "
             "used for longest leave before blocks of this node's engines. 1: they compete with the others."}),
    bound<&node_config::cluster, &cluster_section::transport>(
        {.name = "cluster.transport",
         .type = choice,
         .fallback = "tcp",
         .about = "What UCX uses between nodes. `rdma` was never tried: it is there for those who want to."}),
    bound<&node_config::cluster, &cluster_section::ucx>(
        {.name = "cluster.ucx",
         .type = string_list,
         .fallback = "[]",
         .about = "Variables for UCX, `UCX_KEY=value`; they win over Cenote's own."}),
    bound<&node_config::publish, &publish_section::endpoint>(
        {.name = "publish.endpoint",
         .type = string,
         .about = "ZeroMQ endpoint at which the node publishes what DRAM and NVMe hold and what leaves them, as KV "
                  "events: `tcp://address:port`, `tcp://*:port` or `ipc:///path`. Whoever can reach it reads them. "
                  "Empty: nothing is published."}),
    bound<&node_config::publish, &publish_section::replay>(
        {.name = "publish.replay",
         .type = string,
         .about = "Endpoint of the same form at which subscribers ask for missed events, or for all that is here now. "
                  "Empty: nobody can."}),
    bound<&node_config::publish, &publish_section::name>(
        {.name = "publish.name",
         .type = string,
         .about = "The node's name in topics, `kv@node:<name>@<model>`: 1 to 64 letters, digits, `.`, `_`, `-`. Empty: "
                  "`cluster.name`."}),
    bound<&node_config::trace, &trace_section::otlp>(
        {.name = "trace.otlp",
         .type = string,
         .about = "Collector of OpenTelemetry that takes spans of sampled requests, as OTLP in JSON over HTTP: "
                  "`http://127.0.0.1:4318/v1/traces`, or `https://` with `trace.ca`. Empty: none are made."}),
    bound<&node_config::trace, &trace_section::ca>(
        {.name = "trace.ca",
         .type = string,
         .about = "PEM file of the authorities that the collector's certificate is checked against, for `https://`."}),
    bound<&node_config::prefetch, &prefetch_section::policy>(
        {.name = "prefetch.policy",
         .type = choice,
         .fallback = "timeout",
         .choices = "best_effort|wait_complete|timeout",
         .reloadable = true,
         .about = "When a prefetch is answered, of clients that do not say: when the engine is ready, when all "
                  "is there (a minute at most), or after a time that grows with the tokens to load."}),
    bound<&node_config::prefetch, &prefetch_section::base>(
        {.name = "prefetch.base",
         .type = duration,
         .fallback = "1s",
         .minimum = "0s",
         .maximum = "1m",
         .reloadable = true,
         .about = "Policy timeout: the time for a prefetch of any length."}),
    bound<&node_config::prefetch, &prefetch_section::per_ki_token>(
        {.name = "prefetch.per_ki_token",
         .type = duration,
         .fallback = "250ms",
         .minimum = "0s",
         .maximum = "1m",
         .reloadable = true,
         .about = "Policy timeout: the time for each 1,024 tokens that are not in DRAM."}),
    bound<&node_config::prefetch, &prefetch_section::threshold_tokens>(
        {.name = "prefetch.threshold_tokens",
         .type = integer,
         .unit = "tokens",
         .fallback = "256",
         .minimum = "0",
         .maximum = "16777216",
         .reloadable = true,
         .about = "Fewer tokens than that in lower tiers are not brought up. What is in DRAM is offered anyway."}),
    bound<&node_config::prefetch, &prefetch_section::prefill_tokens_per_s>(
        {.name = "prefetch.prefill_tokens_per_s",
         .type = integer,
         .unit = "tokens/s",
         .fallback = "0",
         .minimum = "0",
         .maximum = "1000000000",
         .reloadable = true,
         .about = "How fast an engine computes, of clients that do not say. A load that would take longer than "
                  "recomputing is not begun, or is cut. 0: unknown; what another client of the instance said "
                  "counts, else `prefetch.assumed_tokens_per_s`."}),
    bound<&node_config::prefetch, &prefetch_section::assumed_tokens_per_s>(
        {.name = "prefetch.assumed_tokens_per_s",
         .type = integer,
         .unit = "tokens/s",
         .fallback = "10000",
         .minimum = "0",
         .maximum = "1000000000",
         .reloadable = true,
         .about = "How fast an engine computes of which nobody said it. The log has a line for each instance of "
                  "which that is assumed. 0: of such an engine nothing is compared."}),
    bound<&node_config::prefetch, &prefetch_section::instance_bytes>(
        {.name = "prefetch.instance_bytes",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1PiB",
         .reloadable = true,
         .about = "Bytes that prefetches of one instance may have loaded or be loading and that no client has "
                  "taken over. 0: only `prefetch.total_bytes` counts."}),
    bound<&node_config::prefetch, &prefetch_section::total_bytes>(
        {.name = "prefetch.total_bytes",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1PiB",
         .about = "The same of all instances together; also the most that is kept from eviction until clients "
                  "take it over. 0: half of `dram.capacity`."}),
    bound<&node_config::prefetch, &prefetch_section::read_ahead>(
        {.name = "prefetch.read_ahead",
         .type = integer,
         .unit = "blocks",
         .fallback = "0",
         .minimum = "0",
         .maximum = "65536",
         .reloadable = true,
         .about = "Behind a chain that is all in DRAM, bring up so many of the blocks that followed it the last "
                  "time, while nothing else is asked for. 0: none."}),
    bound<&node_config::prefetch, &prefetch_section::slow_load>(
        {.name = "prefetch.slow_load",
         .type = duration,
         .fallback = "1s",
         .minimum = "0s",
         .maximum = "1h",
         .reloadable = true,
         .about = "A prefetch that brought blocks up and took at least as long is logged as an example, one in ten "
                  "seconds. 0: none is."}),
    bound<&node_config::optimize, &optimize_section::mode>(
        {.name = "optimize.mode",
         .type = choice,
         .fallback = "watch",
         .about =
             "watch: estimate from a sample of the requests what each instance would hit with other "
             "capacities, where `dram.policy` follows requests, as `auto` and `tblru` do; watch_all: under any "
             "policy, for up to a sixth of the tier's time; apply: as watch_all, and quotas move between groups that "
             "have `quota_min` and `quota_max`; see optimize.md. Takes 0.7 MiB for each of at most 16 "
             "instances."}),
    bound<&node_config::optimize, &optimize_section::interval>(
        {.name = "optimize.interval",
         .type = duration,
         .fallback = "60s",
         .minimum = "1s",
         .maximum = "1h",
         .about = "With `optimize.mode = apply`, the time between steps of a move of quotas; a step that costs hits "
                  "for ten of them is undone."}),
    bound<&node_config::session, &session_section::max_pins>({.name = "session.max_pins",
                                                              .type = integer,
                                                              .unit = "pins",
                                                              .fallback = "65536",
                                                              .minimum = "1",
                                                              .maximum = "16777216",
                                                              .about = "The most pins that a session may ask for."}),
    bound<&node_config::session, &session_section::max_grants>(
        {.name = "session.max_grants",
         .type = integer,
         .unit = "blocks",
         .fallback = "1024",
         .minimum = "1",
         .maximum = "1048576",
         .about = "The most blank blocks handed to a session ahead of its puts."}),
    bound<&node_config::session, &session_section::reserve_timeout>(
        {.name = "session.reserve_timeout",
         .type = duration,
         .fallback = "30s",
         .minimum = "100ms",
         .maximum = "1h",
         .reloadable = true,
         .about = "A reservation that is not committed by then is revoked."}),
    bound<&node_config::gpu, &gpu_section::devices>(
        {.name = "gpu.devices",
         .type = string_list,
         .fallback = "[]",
         .about = "Devices of the GPU tier, each with a pool of its own: `GPU-UUID`, as `nvidia-smi -L` says it; "
                  "`sim:NUMBER` "
                  "behaves like one in host memory. Clients name them in the same words."}),
    bound<&node_config::gpu, &gpu_section::backend>(
        {.name = "gpu.backend",
         .type = choice,
         .fallback = "auto",
         .about = "What `gpu.devices` may name: anything, real GPUs alone, or simulated ones alone."}),
    bound<&node_config::gpu, &gpu_section::capacity>(
        {.name = "gpu.capacity",
         .type = bytes,
         .fallback = "0",
         .minimum = "0",
         .maximum = "1PiB",
         .about = "Device memory of the GPU tier, on each of `gpu.devices`; the engines' own pools have less by it. 0: "
                  "no such tier."}),
    bound<&node_config::gpu, &gpu_section::ingest>(
        {.name = "gpu.ingest",
         .type = choice,
         .fallback = "all",
         .about =
             "Which blocks of the GPU tier are written to DRAM: none, all as they are stored, those that were read "
             "twice, or those that leave. With `all` nothing needs to be copied when they leave."}),
    bound<&node_config::gpu, &gpu_section::policy>(
        {.name = "gpu.policy",
         .type = choice,
         .fallback = "auto",
         .words = eviction::choices_of_requests,
         .reloadable = true,
         .about = "Which blocks leave the GPU tier first; see policies.md."}),
    bound<&node_config::gpu, &gpu_section::high_water>(
        {.name = "gpu.high_water",
         .type = ratio,
         .fallback = "0.97",
         .minimum = "0.1",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of `gpu.capacity` above which eviction starts, ahead of need."}),
    bound<&node_config::gpu, &gpu_section::low_water>(
        {.name = "gpu.low_water",
         .type = ratio,
         .fallback = "0.94",
         .minimum = "0.1",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of `gpu.capacity` at which eviction stops; not above `gpu.high_water`."}),
    bound<&node_config::gpu, &gpu_section::quarantine>(
        {.name = "gpu.quarantine",
         .type = duration,
         .fallback = "30s",
         .minimum = "1s",
         .maximum = "1h",
         .reloadable = true,
         .about = "Blocks that an engine was writing when it died are not reused for so long, if it used a device: its "
                  "GPU may still write. Where NVML can be loaded, not before it no longer lists the process either, "
                  "for at most ten times as long."}),
    bound<&node_config::instances, &instances_section::idle>(
        {.name = "instances.idle",
         .type = duration,
         .fallback = "24h",
         .minimum = "0s",
         .maximum = "8760h",
         .reloadable = true,
         .about = "An instance without a session for so long is given up: its blocks leave DRAM, what is on NVMe "
                  "stays and is found at the next attach. One without a block goes after ten seconds. 0: only then."}),
    bound<&node_config::limits, &limits_section::sessions_per_uid>(
        {.name = "limits.sessions_per_uid",
         .type = integer,
         .unit = "sessions",
         .fallback = "128",
         .minimum = "1",
         .maximum = "4096",
         .reloadable = true,
         .about = "Sessions that the processes of one user may have at once; never more than are left to others, but "
                  "for those who may administrate."}),
    bound<&node_config::limits, &limits_section::connections_per_uid>(
        {.name = "limits.connections_per_uid",
         .type = integer,
         .unit = "connections",
         .fallback = "256",
         .minimum = "1",
         .maximum = "16384",
         .reloadable = true,
         .about = "Connections to the socket that one user may have at once, of half as many as the daemon may open "
                  "files; never more than are left to others. Those who may administrate have 16 more."}),
    bound<&node_config::limits, &limits_section::instances_per_uid>(
        {.name = "limits.instances_per_uid",
         .type = integer,
         .unit = "instances",
         .fallback = "64",
         .minimum = "1",
         .maximum = "65535",
         .reloadable = true,
         .about =
             "Instances that one user may have made; never more than are left to others, but for root and the daemon's "
             "user. One that exists may be joined all the same; idle ones make way."}),
    bound<&node_config::limits, &limits_section::instances>(
        {.name = "limits.instances",
         .type = integer,
         .unit = "instances",
         .fallback = "1024",
         .minimum = "1",
         .maximum = "65535",
         .reloadable = true,
         .about = "Instances of the node. Each takes four descriptors, and address space for what it holds. Idle "
                  "ones make way."}),
    bound<&node_config::limits, &limits_section::descriptors_in_flight>(
        {.name = "limits.descriptors_in_flight",
         .type = integer,
         .unit = "descriptors",
         .fallback = "1024",
         .minimum = "64",
         .maximum = "65536",
         .reloadable = true,
         .about = "Descriptors in answers that one user's clients have not read; further answers wait. At most an "
                  "eighth of what the daemon may open."}),
    bound<&node_config::limits, &limits_section::reserve_share>(
        {.name = "limits.reserve_share",
         .type = ratio,
         .fallback = "0.25",
         .minimum = "0.01",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of `dram.capacity` that blank blocks (handed out, or being written part by part) in the "
                  "hands of one session or of all sessions of one user may take, and half of what those of one "
                  "group may. 64 blocks are always allowed, within a user's share of all blank blocks "
                  "(operations.md)."}),
    bound<&node_config::limits, &limits_section::keep_share>(
        {.name = "limits.keep_share",
         .type = ratio,
         .fallback = "0.5",
         .minimum = "0",
         .maximum = "1",
         .reloadable = true,
         .about = "Share of `dram.capacity` that kept blocks of all groups together may take."}),
    bound<&node_config::limits, &limits_section::pin_share>(
        {.name = "limits.pin_share",
         .type = ratio,
         .fallback = "0.5",
         .minimum = "0.01",
         .maximum = "1",
         .reloadable = true,
         .about =
             "Share of `dram.capacity` that may be pinned in the instances that one user made, while another user "
             "is attached: beyond it these instances get no further blocks. Alone, a user may pin three quarters of "
             "the rest, too. 1: no bound."}),
    bound<&node_config::limits, &limits_section::group_quota>(
        {.name = "limits.group_quota",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "Quota of what groups that the configuration does not name share (the account `default`); with "
                  "`limits.open_groups`, of each of them. 0: none."}),
    bound<&node_config::limits, &limits_section::open_groups>(
        {.name = "limits.open_groups",
         .type = boolean,
         .fallback = "false",
         .reloadable = true,
         .about = "Give each group that a client names an account of its own, with quotas of its own, though the "
                  "configuration does not know it."}),
    bound<&node_config::limits, &limits_section::user_quota>(
        {.name = "limits.user_quota",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "Of those who share the account `default`: how much DRAM the instances that one user made may "
                  "take. 0: as much as the account."}),
    bound<&node_config::limits, &limits_section::user_keep_share>(
        {.name = "limits.user_keep_share",
         .type = ratio,
         .fallback = "0.5",
         .minimum = "0",
         .maximum = "1",
         .reloadable = true,
         .about = "Of those who share the account `default`: share of what it may keep that kept blocks of the "
                  "instances that one user made may take."}),
    bound<&node_config::auth, &auth_section::allow_uids>(
        {.name = "auth.allow_uids",
         .type = integer_list,
         .unit = "uid",
         .fallback = "[]",
         .minimum = "0",
         .maximum = "4294967294",
         .reloadable = true,
         .about = "Users that may attach. Empty: only the daemon's own and root."}),
    bound<&node_config::auth, &auth_section::allow_gids>(
        {.name = "auth.allow_gids",
         .type = integer_list,
         .unit = "gid",
         .fallback = "[]",
         .minimum = "0",
         .maximum = "4294967294",
         .reloadable = true,
         .about = "Groups whose members may attach, beside `auth.allow_uids`."}),
    bound<&node_config::auth, &auth_section::admin_gid>(
        {.name = "auth.admin_gid",
         .type = integer,
         .unit = "gid",
         .fallback = "-1",
         .minimum = "-1",
         .maximum = "4294967294",
         .reloadable = true,
         .about = "Group that may clear, kill sessions and upgrade, beside the daemon's user. -1: none."}),
    bound_in_group<&group_config::quota>(
        {.name = "groups.<name>.quota",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "Hard limit on the DRAM of an instance group. 0: none. The group `default` stands for all that "
                  "the configuration does not name."}),
    bound_in_group<&group_config::quota_min>(
        {.name = "groups.<name>.quota_min",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "With `optimize.mode = apply` the quota may be lowered to this."}),
    bound_in_group<&group_config::quota_max>(
        {.name = "groups.<name>.quota_max",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "With `optimize.mode = apply` the quota may be raised to this. 0: it stays."}),
    bound_in_group<&group_config::priority>(
        {.name = "groups.<name>.priority",
         .type = choice,
         .fallback = "normal",
         .reloadable = true,
         .about = "No block of a group leaves DRAM while a group of a lower class has one that can."}),
    bound_in_group<&group_config::ttl>(
        {.name = "groups.<name>.ttl",
         .type = duration,
         .fallback = "0s",
         .minimum = "0s",
         .maximum = "8760h",
         .reloadable = true,
         .about = "Blocks that nobody used for so long are forgotten, in DRAM and on NVMe. 0: never."}),
    bound_in_group<&group_config::keep>(
        {.name = "groups.<name>.keep",
         .type = string_list,
         .fallback = "[]",
         .reloadable = true,
         .about = "Keys, in hex, of blocks that never leave DRAM once they are there (a system prompt's)."}),
    bound_in_group<&group_config::keep_quota>(
        {.name = "groups.<name>.keep_quota",
         .type = bytes,
         .fallback = "0",
         .reloadable = true,
         .about = "How much of DRAM the group's kept blocks may take, by configuration and by API. 0: a tenth of "
                  "`dram.capacity`."}),
    bound_in_group<&group_config::remote>(
        {.name = "groups.<name>.remote",
         .type = boolean,
         .fallback = "true",
         .reloadable = true,
         .about = "May blocks of the group leave the machine? false: the remote tier neither takes nor gives them."}),
    bound_in_group<&group_config::token>(
        {.name = "groups.<name>.token",
         .type = string,
         .reloadable = true,
         .secret = true,
         .about = "Token that a client needs to attach to instances of the group. Empty: none."}),
    bound_in_group<&group_config::uids>(
        {.name = "groups.<name>.uids",
         .type = integer_list,
         .unit = "uid",
         .fallback = "[]",
         .minimum = "0",
         .maximum = "4294967294",
         .reloadable = true,
         .about = "Users whose clients may attach to instances of the group. Empty: all who may attach."}),
    bound_by_name<&node_config::publishers, &publisher_config::endpoint>(
        {.name = "publishers.<name>.endpoint",
         .type = string,
         .reloadable = true,
         .about = "Where `cenote indexer` hears an engine's or a node's KV events: \"tcp://10.0.0.7:5557\"."}),
    bound_by_name<&node_config::publishers, &publisher_config::replay>(
        {.name = "publishers.<name>.replay",
         .type = string,
         .reloadable = true,
         .about = "Where events that were missed are asked for. Empty: nowhere, a gap makes the pod `degraded`."}),
    bound_by_name<&node_config::publishers, &publisher_config::pod>(
        {.name = "publishers.<name>.pod",
         .type = string,
         .reloadable = true,
         .about = "The pod in answers. Empty: the one in the topic `kv@<pod>@<model>`, else the publisher's name."}),
    bound_by_name<&node_config::publishers, &publisher_config::model>(
        {.name = "publishers.<name>.model",
         .type = string,
         .reloadable = true,
         .about = "The model that it serves. Empty: the one in the topic."}),
    bound_by_name<&node_config::publishers, &publisher_config::node>(
        {.name = "publishers.<name>.node",
         .type = string,
         .reloadable = true,
         .about = "The Cenote node of the pod's machine: its blocks count for the pod, too. Empty: none."}),
    bound_by_name<&node_config::publishers, &publisher_config::engine>(
        {.name = "publishers.<name>.engine",
         .type = choice,
         .fallback = "auto",
         .reloadable = true,
         .about = "The form of its events. `auto`: a node by its topic, else any engine."}),
    bound_by_name<&node_config::publishers, &publisher_config::clear>(
        {.name = "publishers.<name>.clear",
         .type = choice,
         .fallback = "auto",
         .reloadable = true,
         .about = "The media that AllBlocksCleared empties. `auto`: the GPU's of vLLM, all of SGLang and of nodes."}),
    bound<&node_config::indexer, &indexer_section::listen>(
        {.name = "indexer.listen",
         .type = string,
         .fallback = "127.0.0.1:8790",
         .about = "HOST:PORT of `cenote indexer`'s HTTP, or `off`. Off loopback it needs a token or TLS, or "
                  "`indexer.trusted_network`."}),
    bound<&node_config::indexer, &indexer_section::grpc>(
        {.name = "indexer.grpc",
         .type = string,
         .fallback = "127.0.0.1:50051",
         .about = "HOST:PORT of the same over gRPC, or `off`. Token, TLS and what is refused off loopback are those of "
                  "`indexer.listen`."}),
    bound<&node_config::indexer, &indexer_section::socket>(
        {.name = "indexer.socket", .type = string, .about = "Unix socket of the same HTTP. Empty: none."}),
    bound<&node_config::indexer, &indexer_section::token_file>(
        {.name = "indexer.token_file",
         .type = string,
         .about = "File with the bearer token that requests need; nobody else may be able to read it. Empty: none."}),
    bound<&node_config::indexer, &indexer_section::tls_cert>(
        {.name = "indexer.tls_cert", .type = string, .about = "Certificate chain in PEM. Empty: no TLS."}),
    bound<&node_config::indexer, &indexer_section::tls_key>(
        {.name = "indexer.tls_key", .type = string, .about = "Its private key in PEM."}),
    bound<&node_config::indexer, &indexer_section::tls_ca>(
        {.name = "indexer.tls_ca",
         .type = string,
         .about = "Authorities whose client certificates are asked for and checked. Empty: clients need none."}),
    bound<&node_config::indexer, &indexer_section::trusted_network>(
        {.name = "indexer.trusted_network",
         .type = boolean,
         .fallback = "false",
         .about =
             "Your word that only trusted machines reach `indexer.listen` and `indexer.grpc`, where they have neither "
             "token nor TLS."}),
    bound<&node_config::indexer, &indexer_section::threads>(
        {.name = "indexer.threads",
         .type = integer,
         .unit = "threads",
         .fallback = "0",
         .minimum = "0",
         .maximum = "64",
         .about = "Threads that answer questions. 0: chosen from the machine."}),
    bound<&node_config::indexer, &indexer_section::metric_aliases>(
        {.name = "indexer.metric_aliases",
         .type = boolean,
         .fallback = "false",
         .about = "Metrics under llm-d's names, `kvcache_index_*`, beside Cenote's."}),
    bound<&node_config::events, &events_section::bind>(
        {.name = "events.bind",
         .type = string_list,
         .fallback = "[]",
         .about = "Endpoints at which publishers connect, as [\"tcp://*:5557\"]."}),
    bound<&node_config::events, &events_section::topic>({.name = "events.topic",
                                                         .type = string,
                                                         .fallback = "kv@",
                                                         .about = "The beginning of topics that are subscribed to."}),
    bound<&node_config::events, &events_section::engine>(
        {.name = "events.engine",
         .type = choice,
         .fallback = "auto",
         .about = "The form of the events of publishers that connect."}),
    bound<&node_config::events, &events_section::replay_port>(
        {.name = "events.replay_port",
         .type = integer,
         .fallback = "5558",
         .minimum = "0",
         .maximum = "65535",
         .about = "Port of replays at the host of the topic's pod, for publishers that connect. 0: none."}),
    bound<&node_config::events, &events_section::ranks>(
        {.name = "events.ranks",
         .type = integer,
         .unit = "ports",
         .fallback = "1",
         .minimum = "1",
         .maximum = "1024",
         .about = "Ports from each bound one on, one for each data-parallel rank; replays likewise."}),
    bound<&node_config::events, &events_section::grace>(
        {.name = "events.grace",
         .type = duration,
         .fallback = "30s",
         .minimum = "1s",
         .maximum = "24h",
         .about = "How long the blocks of a publisher that is gone stay in answers."}),
    bound<&node_config::discovery, &discovery_section::file>(
        {.name = "discovery.file",
         .type = string,
         .about =
             "TOML file with further tables [publishers.<name>]; a new one in its place takes effect. Empty: none."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_selector>(
        {.name = "discovery.kubernetes.selector",
         .type = string,
         .about =
             "Labels of the pods that publish, as \"llm-d.ai/inference-serving=true\"; the API server is asked for "
             "them. Empty: none are."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_namespace>(
        {.name = "discovery.kubernetes.namespace", .type = string, .about = "Their namespace. Empty: all."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_port>(
        {.name = "discovery.kubernetes.port",
         .type = integer,
         .fallback = "5557",
         .minimum = "1",
         .maximum = "65535",
         .about = "Port of their events; with `events.ranks` the first of as many."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_replay_port>(
        {.name = "discovery.kubernetes.replay_port",
         .type = integer,
         .fallback = "5558",
         .minimum = "0",
         .maximum = "65535",
         .about = "Port of their replays, likewise. 0: none."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_server>(
        {.name = "discovery.kubernetes.server",
         .type = string,
         .about =
             "The API server, as \"https://10.0.0.1:6443\", or \"http://127.0.0.1:8001\" of `kubectl proxy`. Empty: "
             "that of the cluster in which the indexer runs."}),
    bound<&node_config::discovery, &discovery_section::kubernetes_account>(
        {.name = "discovery.kubernetes.account",
         .type = string,
         .fallback = "/var/run/secrets/kubernetes.io/serviceaccount",
         .about = "Folder with the files `token` and `ca.crt` of a service account that may list and watch pods."}),
    bound<&node_config::index, &index_section::backend>(
        {.name = "index.backend",
         .type = choice,
         .fallback = "memory",
         .about = "Where the index is: in this process, or on a Redis server, shared with other indexers and llm-d."}),
    bound<&node_config::index, &index_section::url>(
        {.name = "index.url",
         .type = string,
         .about = "With `index.backend = redis`: `redis://[user@]host:port[/db]`, `valkey://…`, "
                  "`rediss://…[?ca=FILE&cert=FILE&key=FILE&name=HOST]` for TLS, or `unix:///path[?db=…]`."}),
    bound<&node_config::index, &index_section::auth_file>(
        {.name = "index.auth_file",
         .type = string,
         .about = "File with `user:password` or `password` for that server, which others may not read. Empty: none."}),
    bound<&node_config::index, &index_section::block_tokens>(
        {.name = "index.block_tokens",
         .type = integer,
         .unit = "tokens",
         .fallback = "0",
         .minimum = "0",
         .maximum = "65536",
         .about =
             "Tokens of a block of the index, for all models: engines' longer blocks are cut, shorter ones are joined "
             "(some 150 bytes more each). 0: each model's own, and with Redis none for models that llm-d alone "
             "knows."}),
    bound<&node_config::index, &index_section::memory>(
        {.name = "index.memory",
         .type = bytes,
         .fallback = "2GiB",
         .minimum = "1MiB",
         .maximum = "1PiB",
         .about = "Memory of the index, a hard bound: about 28 bytes a block."}),
    bound<&node_config::index, &index_section::key>(
        {.name = "index.key",
         .type = choice,
         .fallback = "xxh3",
         .about = "How keys of blocks are made. `fnv64_cbor`: those of llm-d."}),
    bound<&node_config::index, &index_section::seed>(
        {.name = "index.seed",
         .type = string,
         .about = "Seed of the keys. Empty: with `xxh3` a random one at each start."}),
    bound<&node_config::scoring, &scoring_section::weights>(
        {.name = "scoring.weights",
         .type = ratio_map,
         .fallback = "{gpu = 1.0, cpu = 0.8, disk = 0.6, shared_storage = 0.4, object_store = 0.2}",
         .minimum = "0",
         .maximum = "1000",
         .reloadable = true,
         .about = "Worth of a block by the best medium in which a pod has it; media that are not named weigh 0."}),
    bound<&node_config::scoring, &scoring_section::speculative_ttl>(
        {.name = "scoring.speculative_ttl",
         .type = duration,
         .fallback = "2s",
         .minimum = "10ms",
         .maximum = "1h",
         .reloadable = true,
         .about = "How long a prompt that a router has just sent to a pod counts there without an event."}),
    bound<&node_config::tokenizer, &tokenizer_section::socket>(
        {.name = "tokenizer.socket",
         .type = string,
         .about = "Unix socket of the tokenizer that the indexer asks. Empty: that of `tokenizer.command`, or none."}),
    bound<&node_config::tokenizer, &tokenizer_section::command>(
        {.name = "tokenizer.command",
         .type = string,
         .about = "How the indexer starts a tokenizer of its own, as \"cenote-tokenizer\": a program and its first "
                  "arguments. Empty: it starts none."}),
    bound<&node_config::tokenizer, &tokenizer_section::models>(
        {.name = "tokenizer.models",
         .type = string_list,
         .fallback = "[]",
         .about = "Models and where their tokenizers are, as [\"Qwen/Qwen3-32B=/srv/qwen3\"]."}),
    bound<&node_config::tokenizer, &tokenizer_section::directories>(
        {.name = "tokenizer.directories",
         .type = string_list,
         .fallback = "[]",
         .about = "Folders with models, as the hub's cache has them or as `org/model`."}),
    bound<&node_config::tokenizer, &tokenizer_section::hub>(
        {.name = "tokenizer.hub",
         .type = boolean,
         .fallback = "false",
         .about = "May the tokenizer download models that are nowhere?"}),
    bound<&node_config::tokenizer, &tokenizer_section::cache>({.name = "tokenizer.cache",
                                                               .type = integer,
                                                               .unit = "models",
                                                               .fallback = "16",
                                                               .minimum = "1",
                                                               .maximum = "65536",
                                                               .about = "Tokenizers that stay loaded."}),
    bound<&node_config::tokenizer, &tokenizer_section::workers>({.name = "tokenizer.workers",
                                                                 .type = integer,
                                                                 .unit = "threads",
                                                                 .fallback = "2",
                                                                 .minimum = "1",
                                                                 .maximum = "1024",
                                                                 .about = "Texts that it works on at once."}),
    bound<&node_config::manager, &manager_section::name>(
        {.name = "manager.name", .type = string, .about = "Name of this manager, for answers about the cluster."}),
    bound<&node_config::manager, &manager_section::id>(
        {.name = "manager.id",
         .type = string,
         .fallback = "cenote",
         .about = "Name of the managers that share a store on a Redis server: a part of its keys, 1 to 64 letters, "
                  "digits and `. _ -`."}),
    bound<&node_config::manager, &manager_section::host>(
        {.name = "manager.host",
         .type = string,
         .fallback = "127.0.0.1",
         .about = "Host at which all ports of `cenote manager` listen. Off loopback it needs TLS by "
                  "`manager.tls_cert`, or `manager.trusted_network`."}),
    bound<&node_config::manager, &manager_section::advertise>(
        {.name = "manager.advertise",
         .type = string,
         .about = "Host name or address, without a port, by which others are sent here: the leader's in answers about "
                  "the cluster. Empty: `manager.host`; where that means every address, the machine's first one off "
                  "loopback."}),
    bound<&node_config::manager, &manager_section::meta_rpc_port>({.name = "manager.meta_rpc_port",
                                                                   .type = integer,
                                                                   .fallback = "6381",
                                                                   .minimum = "0",
                                                                   .maximum = "65535",
                                                                   .about = "Port of MetaService over gRPC. 0: none."}),
    bound<&node_config::manager, &manager_section::meta_http_port>({.name = "manager.meta_http_port",
                                                                    .type = integer,
                                                                    .fallback = "6382",
                                                                    .minimum = "0",
                                                                    .maximum = "65535",
                                                                    .about = "Port of the same over HTTP. 0: none."}),
    bound<&node_config::manager, &manager_section::admin_rpc_port>(
        {.name = "manager.admin_rpc_port",
         .type = integer,
         .fallback = "6491",
         .minimum = "0",
         .maximum = "65535",
         .about = "Port of AdminService over gRPC. 0: none."}),
    bound<&node_config::manager, &manager_section::admin_http_port>(
        {.name = "manager.admin_http_port",
         .type = integer,
         .fallback = "6492",
         .minimum = "0",
         .maximum = "65535",
         .about = "Port of the same over HTTP, of `/healthz` and `/metrics`. 0: none."}),
    bound<&node_config::manager, &manager_section::state_dir>(
        {.name = "manager.state_dir",
         .type = string,
         .about = "Folder of the journal and of the first storage. Empty: `manager` in this user's state directory."}),
    bound<&node_config::manager, &manager_section::store>(
        {.name = "manager.store",
         .type = string,
         .fallback = "rocksdb",
         .about = "The journal: `rocksdb` in the state directory, `rocksdb:DIR`; a Redis or Valkey server as "
                  "`redis://[user@]host:port[/db][?prefix=…]`, `valkey://…`, "
                  "`rediss://…[?ca=FILE&cert=FILE&key=FILE&name=HOST]` for TLS, or `unix:///path[?db=…&prefix=…]`; or "
                  "`memory`, which a stop loses."}),
    bound<&node_config::manager, &manager_section::store_auth_file>(
        {.name = "manager.store_auth_file",
         .type = string,
         .about = "File with `user:password` or `password` for that server, which others may not read. Empty: none."}),
    bound<&node_config::manager, &manager_section::store_timeout>(
        {.name = "manager.store_timeout",
         .type = duration,
         .fallback = "1s",
         .minimum = "10ms",
         .maximum = "1m",
         .about =
             "When a request to that server is given up: its change is refused with IO_ERROR, and all is read from "
             "the store anew."}),
    bound<&node_config::manager, &manager_section::store_sync>(
        {.name = "manager.store_sync",
         .type = boolean,
         .fallback = "false",
         .about =
             "RocksDB's journal is on the disk before an answer. Without it a loss of power may take the last seconds; "
             "a killed process loses nothing either way."}),
    bound<&node_config::manager, &manager_section::store_cache>({.name = "manager.store_cache",
                                                                 .type = bytes,
                                                                 .fallback = "64MiB",
                                                                 .minimum = "1MiB",
                                                                 .maximum = "1TiB",
                                                                 .about = "Memory of RocksDB's caches."}),
    bound<&node_config::manager, &manager_section::bootstrap>(
        {.name = "manager.bootstrap",
         .type = string,
         .fallback = "default",
         .about = "What an empty registry begins with: `default` is a storage in the state directory and a group; "
                  "`none`; or the path of a snapshot."}),
    bound<&node_config::manager, &manager_section::tls_cert>(
        {.name = "manager.tls_cert", .type = string, .about = "Certificate chain in PEM. Empty: no TLS."}),
    bound<&node_config::manager, &manager_section::tls_key>(
        {.name = "manager.tls_key", .type = string, .about = "Its private key in PEM."}),
    bound<&node_config::manager, &manager_section::tls_client_ca>(
        {.name = "manager.tls_client_ca",
         .type = string,
         .about = "Authorities whose client certificates are asked for and checked. Empty: clients need none."}),
    bound<&node_config::manager, &manager_section::trusted_network>(
        {.name = "manager.trusted_network",
         .type = boolean,
         .fallback = "false",
         .about = "Your word that only trusted machines reach `manager.host`, and that no other can read what passes "
                  "between them."}),
    bound<&node_config::manager, &manager_section::auth>(
        {.name = "manager.auth",
         .type = choice,
         .fallback = "auto",
         .about = "Whether calls need an account: its password by Basic authorization, or a client certificate of its "
                  "name. `auto`: unless `manager.host` is loopback. The first account is `admin`, with the password in "
                  "`admin.password` of the state directory."}),
    bound<&node_config::manager, &manager_section::rate_requests>(
        {.name = "manager.rate_requests",
         .type = integer,
         .unit = "requests",
         .fallback = "0",
         .minimum = "0",
         .maximum = "1000000000",
         .about = "Requests a second of one account, or of one address where there are no accounts. 0: any number."}),
    bound<&node_config::manager, &manager_section::rate_keys>({.name = "manager.rate_keys",
                                                               .type = integer,
                                                               .unit = "keys",
                                                               .fallback = "0",
                                                               .minimum = "0",
                                                               .maximum = "1000000000",
                                                               .about = "Keys a second, likewise."}),
    bound<&node_config::manager, &manager_section::max_in_flight>(
        {.name = "manager.max_in_flight",
         .type = bytes,
         .fallback = "64MiB",
         .minimum = "1MiB",
         .maximum = "64GiB",
         .about = "Bytes of all requests that are answered at once; what would be more is refused with RATE_LIMITED."}),
    bound<&node_config::manager, &manager_section::threads>({.name = "manager.threads",
                                                             .type = integer,
                                                             .unit = "threads",
                                                             .fallback = "0",
                                                             .minimum = "0",
                                                             .maximum = "64",
                                                             .about =
                                                                 "Threads that answer HTTP on each port. 0: chosen "
                                                                 "from the machine."}),
    bound<&node_config::manager, &manager_section::max_keys>({.name = "manager.max_keys",
                                                              .type = integer,
                                                              .unit = "keys",
                                                              .fallback = "65536",
                                                              .minimum = "1",
                                                              .maximum = "65536",
                                                              .about = "Keys of one request at most."}),
    bound<&node_config::manager, &manager_section::write_timeout>(
        {.name = "manager.write_timeout",
         .type = duration,
         .fallback = "30s",
         .minimum = "1s",
         .maximum = "24h",
         .about = "Time of a write session that names none."}),
    bound<&node_config::manager, &manager_section::max_write_timeout>(
        {.name = "manager.max_write_timeout",
         .type = duration,
         .fallback = "30m",
         .minimum = "1s",
         .maximum = "24h",
         .about = "Longest time of a write session; longer ones are cut."}),
    bound<&node_config::manager, &manager_section::quarantine>(
        {.name = "manager.quarantine",
         .type = duration,
         .fallback = "60s",
         .minimum = "10ms",
         .maximum = "24h",
         .about = "What a session gave up is deleted once more after this time, and after ten times that: its client "
                  "may be late."}),
    bound<&node_config::manager, &manager_section::probe_interval>({.name = "manager.probe_interval",
                                                                    .type = duration,
                                                                    .fallback = "1s",
                                                                    .minimum = "10ms",
                                                                    .maximum = "1h",
                                                                    .about = "Pause between probes of a storage."}),
    bound<&node_config::manager, &manager_section::probe_timeout>(
        {.name = "manager.probe_timeout",
         .type = duration,
         .fallback = "2s",
         .minimum = "10ms",
         .maximum = "1h",
         .about = "A storage that hangs longer is unhealthy: not read, not written."}),
    bound<&node_config::manager, &manager_section::read_choice>(
        {.name = "manager.read_choice",
         .type = choice,
         .fallback = "weighted",
         .about = "Which storage is read where several have a block: drawn by weights once a request, or the first "
                  "candidate of the group."}),
    bound<&node_config::manager, &manager_section::trace_file>(
        {.name = "manager.trace_file",
         .type = string,
         .about = "A file to which lookups and writes are appended as lines of JSON, for the optimizer. At 256 MiB it "
                  "becomes `.1`, and so on up to `.3`. It has keys of blocks and names of instances. Empty: none."}),
    bound<&node_config::manager, &manager_section::plugins>(
        {.name = "manager.plugins",
         .type = string_list,
         .fallback = "[]",
         .about =
             "Programs that delete and probe in storages of further types: `NAME=PROGRAM`, words with blanks between "
             "them, no shell. NAME: `mooncake`, `tairmempool`, `tairmempool_ssd`, `vcns_3fs`, `dummy`. See "
             "`manager.md`."}),
    bound<&node_config::metrics, &metrics_section::listen>(
        {.name = "metrics.listen",
         .type = string,
         .fallback = "127.0.0.1:0",
         .about = "HOST:PORT of /ui, /metrics, /healthz and /status over HTTP, or `off`. Port 0: any free one; "
                  "`cenote status` shows it. Whoever can reach it may read."}),
    bound<&node_config::debug, &debug_section::enabled>(
        {.name = "debug.enabled",
         .type = boolean,
         .fallback = "false",
         .about =
             "Allow `cenote debug`, which serves wrong bytes on purpose, and faults of a manager: for tests only."}),
    bound<&node_config::debug, &debug_section::kill_at>(
        {.name = "debug.kill_at",
         .type = string_list,
         .fallback = "[]",
         .about = "With `debug.enabled`: the node's first worker is killed right behind the first of these points "
                  "of its sources, the second worker behind the second, and so on. `point:3`: at its third "
                  "passing. `point:3:hang`: the thread that passes stands still instead. A manager has points of "
                  "its own, and is killed at the one that it comes to first. Empty: not. For tests of restarts "
                  "only."}),
    bound<&node_config::log, &log_section::level>(
        {.name = "log.level",
         .type = string,
         .fallback = "info",
         .reloadable = true,
         .about = "trace, debug, info, warn, error or off; per component as in `info,keeper=debug`."}),
    bound<&node_config::log, &log_section::format>(
        {.name = "log.format",
         .type = choice,
         .fallback = "auto",
         .about = "How lines look. auto: journal if systemd's journal reads them, else text."}),
};

static_assert(std::ranges::all_of(keys, [](const key_schema& each) { return each.is_bound; }),
              "a key is bound to no member");

constexpr std::string_view placeholder = "<name>";

struct pattern {
  std::string_view prefix;  // "groups."
  std::string_view suffix;  // ".quota"
};

std::optional<pattern> pattern_of(const key_schema& schema) {
  const auto at = schema.name.find(placeholder);
  if (at == std::string_view::npos) return std::nullopt;
  return pattern{schema.name.substr(0, at), schema.name.substr(at + placeholder.size())};
}

bool describes(const key_schema& schema, std::string_view key) {
  const auto parts = pattern_of(schema);
  if (!parts) return schema.name == key;
  return key.size() > parts->prefix.size() + parts->suffix.size() && key.starts_with(parts->prefix) &&
         key.ends_with(parts->suffix);
}

/// A schema's name with the user's own middle part in the place of "<name>", so that only the rest counts as
/// misspelt.
std::string with_name_from(const key_schema& schema, std::string_view key) {
  const auto parts = pattern_of(schema);
  const auto first = key.find('.');
  const auto last = key.rfind('.');
  if (!parts || first == last) return std::string(schema.name);
  return fmt::format("{}{}{}", parts->prefix, key.substr(first + 1, last - first - 1), parts->suffix);
}

std::string_view leaf(std::string_view key) {
  return key.substr(key.rfind('.') + 1);
}

}  // namespace

std::span<const key_schema> all_keys() {
  return keys;
}

const key_schema* find_key(std::string_view key) {
  const auto found = std::ranges::find_if(keys, [key](const auto& schema) { return describes(schema, key); });
  return found == keys.end() ? nullptr : &*found;
}

std::string_view chosen_name(const key_schema& schema, std::string_view key) {
  const auto parts = pattern_of(schema);
  if (!parts) return {};
  return key.substr(parts->prefix.size(), key.size() - parts->prefix.size() - parts->suffix.size());
}

bool is_pattern(const key_schema& schema) {
  return pattern_of(schema).has_value();
}

bool is_section(std::string_view name) {
  return std::ranges::any_of(keys, [name](const auto& schema) {
    const auto parts = pattern_of(schema);
    const bool table = schema.name.starts_with(name) && schema.name.substr(name.size()).starts_with('.');
    return table || (parts && name.size() > parts->prefix.size() && name.starts_with(parts->prefix));
  });
}

std::optional<std::string> nearest_key(std::string_view key) {
  std::vector<std::string> candidates;
  for (const auto& schema : keys) {
    candidates.push_back(with_name_from(schema, key));
    candidates.emplace_back(schema.name.substr(0, schema.name.find('.')));
  }
  if (auto found = nearest(key, candidates)) return found;
  const auto same_leaf =
      std::ranges::find_if(keys, [key](const auto& schema) { return leaf(schema.name) == leaf(key); });
  if (same_leaf != keys.end()) return std::string(same_leaf->name);
  return std::nullopt;
}

std::vector<std::string> choices_of(const key_schema& schema) {
  std::vector<std::string> words;
  auto rest = schema.words != nullptr ? schema.words() : schema.choices;
  while (!rest.empty()) {
    const auto bar = rest.find('|');
    words.emplace_back(rest.substr(0, bar));
    rest = bar == std::string_view::npos ? std::string_view{} : rest.substr(bar + 1);
  }
  return words;
}

std::string_view type_name(value_type type) {
  switch (type) {
    case string: return "string";
    case integer: return "integer";
    case boolean: return "boolean";
    case bytes: return "size";
    case duration: return "duration";
    case ratio: return "ratio";
    case choice: return "choice";
    case string_list: return "list of strings";
    case integer_list: return "list of integers";
    case ratio_map: return "table of ratios";
  }
  return "?";
}

std::string range_of(const key_schema& schema) {
  if (!schema.minimum.empty() && !schema.maximum.empty())
    return fmt::format("{} to {}", schema.minimum, schema.maximum);
  if (!schema.minimum.empty()) return fmt::format("from {}", schema.minimum);
  if (!schema.maximum.empty()) return fmt::format("up to {}", schema.maximum);
  return {};
}

std::string accepted(const key_schema& schema) {
  const auto range = range_of(schema);
  const auto with_range = [&range](std::string_view what) {
    return range.empty() ? std::string(what) : fmt::format("{}, {}", what, range);
  };
  switch (schema.type) {
    case string: return "a string";
    case integer: return with_range("an integer");
    case boolean: return "true or false";
    case bytes: return with_range("a size such as \"4GiB\"");
    case duration: return with_range("a duration such as \"250ms\"");
    case ratio: return with_range("a number");
    case choice: return fmt::format("one of {}", fmt::join(choices_of(schema), ", "));
    case string_list: return "a list of strings such as [\"a\", \"b\"]";
    case integer_list: return with_range("a list of integers such as [1000, 1001]");
    case ratio_map: return with_range("a table of numbers such as {gpu = 1.0, cpu = 0.8}");
  }
  return "?";
}

}  // namespace cenote::config
