// The node's configuration in plain types, and how it is loaded, shown and reloaded.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/indexer_sections.hpp"
#include "config/manager_section.hpp"
#include "config/sources.hpp"
#include "config/value.hpp"
#include "core/block_key.hpp"
#include "core/choices.hpp"
#include "core/endpoint.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"

namespace cenote::config {

struct node_section {
  std::string socket;       ///< empty: in the runtime directory; see socket_path()
  std::string runtime_dir;  ///< empty: by user; see runtime_dir()
  unsigned threads = 0;     ///< 0: chosen from the machine
  std::chrono::nanoseconds drain_timeout{};
  std::chrono::nanoseconds flush_timeout{};  ///< see flush_time()
  std::chrono::nanoseconds stop_limit{};     ///< of what stops the node; 0: not known here
  std::uint32_t max_sessions = 0;
  std::chrono::nanoseconds hang_timeout{};  ///< 0: a worker that hangs is left alone
};

enum class huge_pages { automatic, off };
CENOTE_ENUM_NAMES(huge_pages, automatic, off);

enum class integrity { leave, commit };  ///< when a block's checksum is taken
CENOTE_ENUM_NAMES(integrity, leave, commit);

struct dram_section {
  std::uint64_t capacity = 0;  ///< bytes
  std::string policy;
  double high_water = 0;
  double low_water = 0;  ///< not above high_water
  bool populate = false;
  config::huge_pages huge_pages = config::huge_pages::automatic;
  std::optional<int> numa_node;
  config::integrity integrity = config::integrity::leave;
  std::uint64_t slab_size = 0;  ///< bytes; 0: chosen from capacity and block sizes
  bool grants_in_capacity = true;
};

enum class admission { always, second_sight };  ///< of what goes down: at once, or when it comes again
CENOTE_ENUM_NAMES(admission, always, second_sight);

struct nvme_section {
  std::vector<std::string> paths;  ///< empty: no such tier
  bool require_mount = false;      ///< none of them may lie on the root file system
  std::uint64_t capacity = 0;      ///< bytes on all paths, metadata included
  cenote::ingest ingest = cenote::ingest::evicted;
  std::uint32_t hot_accesses = 0;
  bool keep_copy = true;
  std::string policy;
  double high_water = 0;
  double low_water = 0;  ///< not above high_water
  config::admission admission = config::admission::always;
  std::uint64_t write_window = 0;  ///< bytes under way
  double write_ahead = 0;          ///< share of DRAM
  std::uint64_t read_window = 0;
  engine_kind engine = engine_kind::automatic;
  std::uint32_t queue_depth = 0;
};

enum class cluster_transport { tcp, rdma };
CENOTE_ENUM_NAMES(cluster_transport, tcp, rdma);

struct cluster_section {
  std::string name;  ///< empty: the node is alone
  std::string id;    ///< of the cluster
  std::optional<endpoint> listen;
  std::vector<std::string> seeds;
  std::string ports;  ///< "first-last"; empty: any
  std::string secret_file;
  bool trusted_network = false;
  std::chrono::nanoseconds beat{};
  std::chrono::nanoseconds suspect_after{};
  std::chrono::nanoseconds gone_after{};
  std::chrono::nanoseconds settle{};  ///< for so long the homes of before a change are asked, too
  std::uint64_t weight = 0;           ///< bytes; 0: what DRAM and NVMe hold
  double copies = 0;                  ///< share of DRAM
  double guest_share = 0;             ///< share of DRAM
  cluster_transport transport = cluster_transport::tcp;
  std::vector<std::string> ucx;  ///< "UCX_KEY=value"
};

struct remote_section {
  std::vector<std::string> backends;  ///< in the order in which they are asked; empty: no such tier
  std::string auth_file;              ///< `user:password` or `password`; empty: none
  std::string state_dir;              ///< empty: by the user
  cenote::ingest ingest = cenote::ingest::all;
  std::uint32_t hot_accesses = 0;
  bool keep_copy = true;
  std::uint64_t write_window = 0;  ///< bytes under way
  std::uint64_t read_window = 0;
  std::uint32_t replicas = 1;
  std::uint64_t peer_window = 0;              ///< … from, and to, one other node
  std::chrono::nanoseconds timeout{};         ///< of a transfer or removal, all backends together
  std::chrono::nanoseconds lookup_timeout{};  ///< of the question what is there
};

struct publish_section {
  std::string endpoint;  ///< at which KV events are published; empty: none are
  std::string replay;    ///< at which they can be asked for again; empty: nowhere
  std::string name;      ///< of the node in topics; empty: cluster_section::name
};

struct trace_section {
  std::string otlp;  ///< the collector of spans, "http://HOST:PORT/v1/traces"; empty: none are made
  std::string ca;    ///< PEM file of authorities, for https
};

struct prefetch_section {
  prefetch_policy policy = prefetch_policy::timeout;
  std::chrono::nanoseconds base{};
  std::chrono::nanoseconds per_ki_token{};
  std::uint64_t threshold_tokens = 0;
  std::uint64_t prefill_tokens_per_s = 0;  ///< 0: unknown
  std::uint64_t assumed_tokens_per_s = 0;  ///< where it is unknown; 0: nothing is compared
  std::uint64_t instance_bytes = 0;        ///< 0: no limit of its own
  std::uint64_t total_bytes = 0;           ///< 0: half of the DRAM tier
  std::uint64_t read_ahead = 0;            ///< blocks
  std::chrono::nanoseconds slow_load{};    ///< 0: none is logged
};

enum class optimize_mode { off, watch, watch_all, apply };
CENOTE_ENUM_NAMES(optimize_mode, off, watch, watch_all, apply);

struct optimize_section {
  optimize_mode mode = optimize_mode::watch;
  std::chrono::nanoseconds interval{};  ///< between moves of quotas
};

struct session_section {
  std::uint32_t max_pins = 0;
  std::uint32_t max_grants = 0;
  std::chrono::nanoseconds reserve_timeout{};
};

enum class gpu_backend { automatic, cuda, sim };
CENOTE_ENUM_NAMES(gpu_backend, automatic, cuda, sim);

struct gpu_section {
  std::vector<std::string> devices;  ///< as core/device_spec.hpp names them; a tier each
  gpu_backend backend = gpu_backend::automatic;
  std::uint64_t capacity = 0;  ///< bytes on each of them; 0: no such tier
  cenote::ingest ingest = cenote::ingest::all;
  std::string policy;
  double high_water = 0;
  double low_water = 0;                   ///< not above high_water
  std::chrono::nanoseconds quarantine{};  ///< of blocks that a dead engine's GPU may still write

  [[nodiscard]] bool has_tier() const noexcept { return capacity != 0 && !devices.empty(); }
};

struct instances_section {
  std::chrono::nanoseconds idle{};  ///< without a session; 0: given up only when it is empty
};

struct limits_section {
  std::uint32_t sessions_per_uid = 0;
  std::uint32_t connections_per_uid = 0;
  std::uint32_t instances_per_uid = 0;
  std::uint32_t instances = 0;
  std::uint32_t descriptors_in_flight = 0;  ///< of one uid
  double reserve_share = 0;                 ///< of the DRAM capacity
  double keep_share = 0;                    ///< of the DRAM capacity
  double pin_share = 0;                     ///< of the DRAM capacity
  std::uint64_t group_quota = 0;            ///< bytes; 0: none
  bool open_groups = false;
  std::uint64_t user_quota = 0;  ///< bytes; 0: none
  double user_keep_share = 0;    ///< of what the account `default` may keep
};

struct auth_section {
  std::vector<uid_t> allow_uids;  ///< both lists empty: only the daemon's own uid and root
  std::vector<gid_t> allow_gids;
  std::optional<gid_t> admin_gid;
};

struct group_config {
  std::uint64_t quota = 0;      ///< bytes; 0: none
  std::uint64_t quota_min = 0;  ///< bytes; with quota_max: between these the quota may be moved
  std::uint64_t quota_max = 0;  ///< bytes; 0: it stays
  std::string token;            ///< empty: none
  std::vector<uid_t> uids;      ///< who may name it; empty: anybody who may attach
  cenote::priority priority = cenote::priority::normal;
  std::chrono::nanoseconds ttl{};  ///< 0: none
  std::vector<full_key> keep;
  std::uint64_t keep_quota = 0;  ///< bytes; 0: a tenth of the capacity
  bool remote = true;            ///< its blocks may leave the machine
};

enum class log_format { automatic, text, json, journal };
CENOTE_ENUM_NAMES(log_format, automatic, text, json, journal);

struct metrics_section {
  std::optional<endpoint> listen;  ///< nothing: no HTTP server
};

struct debug_section {
  bool enabled = false;              ///< wrong bytes may be asked for
  std::vector<std::string> kill_at;  ///< by worker: the point behind which it dies, see actors/kill_at.hpp
};

struct log_section {
  std::string level;  ///< a valid level specification, see config/level_spec.hpp
  log_format format = log_format::automatic;
};

/// A value with the place it came from ("default", "cenote.toml:3", "--set", …).
struct setting {
  typed_value value;
  std::string source;
};

/// A valid configuration; made by load(), since the defaults are the schema's and not those of the members.
/// A plain value: copies are independent.
struct node_config {
  node_section node;
  dram_section dram;
  nvme_section nvme;
  remote_section remote;
  cluster_section cluster;
  publish_section publish;
  trace_section trace;
  prefetch_section prefetch;
  optimize_section optimize;
  session_section session;
  gpu_section gpu;
  instances_section instances;
  limits_section limits;
  auth_section auth;
  std::map<std::string, group_config> groups;  ///< only groups that are named somewhere
  std::map<std::string, publisher_config> publishers;
  indexer_section indexer;
  manager_section manager;
  events_section events;
  discovery_section discovery;
  index_section index;
  scoring_section scoring;
  tokenizer_section tokenizer;
  metrics_section metrics;
  debug_section debug;
  log_section log;
  /// What the members above were made from, by key; changing a member does not change it.
  std::map<std::string, setting, std::less<>> settings;
};

/// Defaults < file < environment < --set. Every failure is invalid_config, and its message names the place,
/// the key, the value and what would be right; a misspelt key comes with the nearest name. Thread-safe.
[[nodiscard]] result<node_config> load(const config_sources& sources);

/// What load() gives without any source.
[[nodiscard]] node_config default_config();

/// The directory of the node's socket and lock: the configured one, else this user's
/// (core/runtime_paths.hpp).
[[nodiscard]] std::string runtime_dir(const node_config& config);

/// The node's socket: the configured one, else the one in runtime_dir().
[[nodiscard]] std::string socket_path(const node_config& config);
/// The time in which a stopping node writes down what DRAM alone has; 0: none, or no tier below could take it.
[[nodiscard]] std::chrono::nanoseconds flush_time(const node_config& config);
/// The time after which a stop in order has ended at the latest: node.drain_timeout, flush_time(), and 2 s for the
/// rest.
[[nodiscard]] std::chrono::nanoseconds stop_time(const node_config& config);

/// One line of `cenote config show`.
struct config_value {
  std::string key;
  std::string text;  ///< as TOML; "(hidden)" of secrets
  std::string source;
  bool secret = false;
};

/// Every key with its value and where it came from, sections together in the schema's order.
[[nodiscard]] std::vector<config_value> effective(const node_config& config);

/// The values as a TOML file that load() takes, each with its source as a comment; secrets are left out by
/// name.
[[nodiscard]] std::string to_toml(std::span<const config_value> values);

/// All that is not a default, secrets included, as TOML for load_running(): what a node that runs hands to its next
/// worker, whatever became of the sources. Not for eyes.
[[nodiscard]] std::string running_text(const node_config& config);

/// The configuration that running_text() wrote. Fails like load(), as when another version wrote it.
[[nodiscard]] result<node_config> load_running(std::string_view text);

/// Keys whose values differ and that need a restart to change, in alphabetical order.
[[nodiscard]] std::vector<std::string> changed_unreloadable(const node_config& running, const node_config& wanted);

/// `running` with all reloadable keys of `wanted`: what a node runs with after SIGHUP. Fails if the mixture
/// is not valid (a slab size that only suits the new capacity).
[[nodiscard]] result<node_config> reloaded(const node_config& running, const node_config& wanted);

}  // namespace cenote::config
