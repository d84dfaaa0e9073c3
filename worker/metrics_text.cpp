#include "worker/metrics_text.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <limits>
#include <utility>

#include "core/text.hpp"

namespace cenote {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using labels = std::vector<ClientMetric::Label>;

/// Nanoseconds: where the buckets of times end.
constexpr std::array<std::uint64_t, 13> time_limits{1'000,       10'000,        30'000,        100'000,    300'000,
                                                    1'000'000,   3'000'000,     10'000'000,    30'000'000, 100'000'000,
                                                    300'000'000, 1'000'000'000, 10'000'000'000};

/// A scrape with one byte that is not UTF-8 is dropped whole.
labels utf8(labels of) {
  for (ClientMetric::Label& each : of) each.value = as_utf8(each.value);
  return of;
}

/// Families in the order in which they are first named.
class collection {
 public:
  void gauge(const char* name, const char* help, double value, labels of = {}) {
    ClientMetric metric;
    metric.label = utf8(std::move(of));
    metric.gauge.value = value;
    family(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
  }
  void gauge(const char* name, const char* help, std::uint64_t value, labels of = {}) {
    gauge(name, help, static_cast<double>(value), std::move(of));
  }
  void counter_of(const char* name, const char* help, double value, labels of = {}) {
    ClientMetric metric;
    metric.label = utf8(std::move(of));
    metric.counter.value = value;
    family(name, help, MetricType::Counter).metric.push_back(std::move(metric));
  }
  void counter(const char* name, const char* help, std::uint64_t value, labels of = {}) {
    counter_of(name, help, static_cast<double>(value), std::move(of));
  }
  /// Seconds, of a histogram of nanoseconds.
  void seconds(const char* name, const char* help, const histogram& of, labels with = {}) {
    ClientMetric metric;
    metric.label = utf8(std::move(with));
    for (const std::uint64_t limit : time_limits) {
      metric.histogram.bucket.push_back(
          {.cumulative_count = of.count_up_to(limit), .upper_bound = static_cast<double>(limit) / 1e9});
    }
    metric.histogram.bucket.push_back(
        {.cumulative_count = of.count(), .upper_bound = std::numeric_limits<double>::infinity()});
    metric.histogram.sample_count = metric.histogram.bucket.back().cumulative_count;
    metric.histogram.sample_sum = static_cast<double>(of.sum()) / 1e9;
    family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }
  [[nodiscard]] std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  MetricFamily& family(const char* name, const char* help, MetricType type) {
    for (MetricFamily& each : families_) {
      if (each.name == name) return each;
    }
    MetricFamily& made = families_.emplace_back();
    made.name = name;
    made.help = help;
    made.type = type;
    return made;
  }

  std::vector<MetricFamily> families_;
};

template <class Counters>
struct counter_row {
  const char* name;
  const char* help;
  std::uint64_t Counters::*value;
};

template <class Counters, std::size_t N>
void add_counters(collection& into, const Counters& from, const std::array<counter_row<Counters>, N>& rows) {
  for (const auto& row : rows) into.counter(row.name, row.help, from.*row.value);
}

using dram_counters = dram::store_counters;
constexpr std::array dram_rows{
    counter_row<dram_counters>{"cenote_dram_commits_total", "Blocks that were stored.", &dram_counters::commits},
    counter_row<dram_counters>{"cenote_dram_duplicates_total", "Blocks that were there already when they were stored.",
                               &dram_counters::duplicates},
    counter_row<dram_counters>{"cenote_dram_evicted_total", "Blocks that left to make room.", &dram_counters::evicted},
    counter_row<dram_counters>{"cenote_dram_removed_total", "Blocks that a client or an operator removed.",
                               &dram_counters::removed},
    counter_row<dram_counters>{"cenote_dram_moved_total", "Blocks that moved to another slab to free theirs.",
                               &dram_counters::moved},
    counter_row<dram_counters>{"cenote_dram_slabs_moved_total", "Slabs that one instance gave up for another.",
                               &dram_counters::slabs_moved},
    counter_row<dram_counters>{"cenote_dram_no_space_total", "Reservations refused because all is in use.",
                               &dram_counters::no_space},
    counter_row<dram_counters>{"cenote_dram_refused_commits_total", "Commits of blocks that were not reserved.",
                               &dram_counters::refused_commits},
    counter_row<dram_counters>{"cenote_dram_revoked_reservations_total", "Reservations that were taken back.",
                               &dram_counters::revoked_reservations},
    counter_row<dram_counters>{"cenote_dram_revoked_grants_total", "Blank blocks taken back from idle sessions.",
                               &dram_counters::revoked_grants},
    counter_row<dram_counters>{"cenote_dram_quarantine_freed_total",
                               "Blocks that had been set aside and that nobody can write any more.",
                               &dram_counters::quarantine_freed},
    counter_row<dram_counters>{"cenote_dram_collisions_total", "Full keys that met another one's index key.",
                               &dram_counters::collisions},
    counter_row<dram_counters>{"cenote_dram_reclaimed_blocks_total", "Blocks taken back from dead clients.",
                               &dram_counters::reclaimed_blocks},
    counter_row<dram_counters>{"cenote_dram_touches_total", "Uses that clients reported.", &dram_counters::touches},
    counter_row<dram_counters>{"cenote_dram_touches_dropped_total", "Uses beyond what one record or batch may name.",
                               &dram_counters::touches_dropped},
    counter_row<dram_counters>{"cenote_dram_reserve_refused_total",
                               "Reservations beyond a session's, a user's or a group's share.",
                               &dram_counters::reserve_refused},
    counter_row<dram_counters>{"cenote_dram_victims_examined_total", "Blocks that eviction looked at.",
                               &dram_counters::victims_examined},
    counter_row<dram_counters>{"cenote_dram_pinned_victims_total", "… of those, blocks that somebody held.",
                               &dram_counters::pinned_victims},
    counter_row<dram_counters>{"cenote_dram_pin_scans_total", "Looks through the pins of an instance's sessions.",
                               &dram_counters::pin_scans},
    counter_row<dram_counters>{"cenote_dram_checksum_errors_total", "Blocks dropped because their bytes were wrong.",
                               &dram_counters::checksum_errors},
    counter_row<dram_counters>{"cenote_dram_demoted_total", "Blocks that the tier below took.",
                               &dram_counters::demoted},
    counter_row<dram_counters>{"cenote_dram_demotions_dropped_total", "Blocks that left without a copy below.",
                               &dram_counters::demotions_dropped},
    counter_row<dram_counters>{"cenote_instances_given_up_total", "Instances that nobody used and that were given up.",
                               &dram_counters::instances_given_up},
    counter_row<dram_counters>{"cenote_dram_promoted_total", "Blocks brought up from below.", &dram_counters::promoted},
    counter_row<dram_counters>{"cenote_dram_promotions_failed_total", "Blocks asked for below and not got.",
                               &dram_counters::promotions_failed},
    counter_row<dram_counters>{"cenote_dram_expired_total", "Blocks that nobody used for their group's time to live.",
                               &dram_counters::expired},
    counter_row<dram_counters>{"cenote_dram_waits_total", "Batches of a session that waited for memory.",
                               &dram_counters::waits},
    counter_row<dram_counters>{"cenote_dram_put_waits_total",
                               "Times that a put found no blank block and had to evict for itself.",
                               &dram_counters::put_waits},
};

using nvme_counters = nvme::store_counters;
constexpr std::array nvme_rows{
    counter_row<nvme_counters>{"cenote_nvme_written_total", "Blocks written.", &nvme_counters::written},
    counter_row<nvme_counters>{"cenote_nvme_written_bytes_total", "Bytes of blocks written.",
                               &nvme_counters::written_bytes},
    counter_row<nvme_counters>{"cenote_nvme_read_total", "Blocks read, and right.", &nvme_counters::read},
    counter_row<nvme_counters>{"cenote_nvme_read_bytes_total", "Bytes of blocks read.", &nvme_counters::read_bytes},
    counter_row<nvme_counters>{"cenote_nvme_dropped_total", "Blocks not written: no room, or an error.",
                               &nvme_counters::dropped},
    counter_row<nvme_counters>{"cenote_nvme_unadmitted_total",
                               "Blocks not written because they came for the first time.", &nvme_counters::unadmitted},
    counter_row<nvme_counters>{"cenote_nvme_evicted_total", "Blocks that left to make room.", &nvme_counters::evicted},
    counter_row<nvme_counters>{"cenote_nvme_removed_total", "Blocks that a client or an operator removed.",
                               &nvme_counters::removed},
    counter_row<nvme_counters>{"cenote_nvme_checksum_errors_total", "Blocks read that were not what was written.",
                               &nvme_counters::checksum_errors},
    counter_row<nvme_counters>{"cenote_nvme_io_errors_total", "Transfers that a disk refused.",
                               &nvme_counters::io_errors},
    counter_row<nvme_counters>{"cenote_nvme_misses_total", "Blocks asked for that were not there.",
                               &nvme_counters::misses},
    counter_row<nvme_counters>{"cenote_nvme_expired_total", "Blocks that nobody used for their group's time to live.",
                               &nvme_counters::expired},
};

void add_dram(collection& into, const dram::store_status& dram) {
  into.gauge("cenote_dram_capacity_bytes", "Memory that slabs may take.", dram.capacity);
  into.gauge("cenote_dram_assigned_bytes", "Memory of slabs.", dram.assigned);
  into.gauge("cenote_dram_cached_bytes", "Memory of blocks that are hits.", dram.cached);
  into.gauge("cenote_dram_used_bytes", "Memory of blocks in use.", dram.used);
  into.gauge("cenote_dram_writing_bytes", "On their way to the tier below.", dram.writing_bytes);
  into.gauge("cenote_dram_loading_bytes", "On their way from the tier below.", dram.loading_bytes);
  const std::array<std::pair<const char*, std::uint64_t>, 7> states{{{"present", dram.present},
                                                                     {"granted", dram.granted},
                                                                     {"pending", dram.pending},
                                                                     {"zombie", dram.zombie},
                                                                     {"quarantined", dram.quarantined},
                                                                     {"loading", dram.loading},
                                                                     {"free", dram.free}}};
  for (const auto& [state, count] : states) {
    into.gauge("cenote_dram_blocks", "Blocks, by what they are in.", count, {{"state", state}});
  }
  add_counters(into, dram.counters, dram_rows);
}

void add_instances(collection& into, const dram::store_status& dram) {
  for (const dram::instance_status& each : dram.instances) {
    const labels of{{"instance", each.id}};
    into.gauge("cenote_instance_blocks", "Blocks of an instance in DRAM.", each.present, of);
    into.gauge("cenote_instance_bytes", "Memory of an instance's slabs.", each.bytes, of);
    into.gauge("cenote_instance_sessions", "Sessions of an instance.", each.sessions, of);
    into.gauge("cenote_instance_idle_seconds", "For how long an instance has had no session.",
               each.idle.value_or(0) / 10.0, of);
    if (!each.chosen) continue;
    into.gauge("cenote_instance_policy", "1, with the policy that `auto` has at work.", 1.0,
               {{"instance", each.id}, {"policy", std::string(each.chosen->policy)}});
    into.counter("cenote_instance_policy_switches_total", "Times that `auto` moved to another policy.",
                 each.chosen->switches, of);
  }
  for (const dram::account_status& each : dram.accounts) {
    const labels of{{"group", each.name}};
    into.gauge("cenote_group_quota_bytes", "Most memory of an instance group, 0: no limit.", each.quota, of);
    into.gauge("cenote_group_used_bytes", "Memory of an instance group.", each.used, of);
    into.gauge("cenote_group_kept_bytes", "Memory of an instance group's kept blocks.", each.kept, of);
    into.gauge("cenote_group_reserved_bytes", "Memory of blocks that are being written part by part, or set aside.",
               each.reserved, of);
  }
}

using prefetch_counters = prefetch::status;
constexpr std::array prefetch_rows{
    counter_row<prefetch_counters>{"cenote_prefetch_started_total", "Prefetches that were begun.",
                                   &prefetch_counters::started},
    counter_row<prefetch_counters>{"cenote_prefetch_blocks_wanted_total", "Blocks of their chains.",
                                   &prefetch_counters::wanted},
    counter_row<prefetch_counters>{"cenote_prefetch_blocks_loaded_total", "Blocks that came up for them.",
                                   &prefetch_counters::loaded},
    counter_row<prefetch_counters>{"cenote_prefetch_blocks_lost_total", "Blocks that were asked for and did not come.",
                                   &prefetch_counters::lost},
    counter_row<prefetch_counters>{"cenote_prefetch_read_ahead_total", "Blocks that came up on speculation.",
                                   &prefetch_counters::read_ahead},
    counter_row<prefetch_counters>{"cenote_prefetch_refused_total", "Prefetches of sessions that had too many.",
                                   &prefetch_counters::refused},
    counter_row<prefetch_counters>{"cenote_prefetch_unclaimed_total",
                                   "Prefetches whose blocks no client took over in time.",
                                   &prefetch_counters::unclaimed},
    counter_row<prefetch_counters>{"cenote_prefetch_compared_total", "Prefetches that were compared with recomputing.",
                                   &prefetch_counters::compared},
    counter_row<prefetch_counters>{"cenote_prefetch_probes_total", "Windows that were loaded to measure the device.",
                                   &prefetch_counters::probes},
};

void add_prefetch(collection& into, const prefetch::status& from, const dram::store_status& dram) {
  add_counters(into, from, prefetch_rows);
  for (std::size_t i = 0; i < prefetch::reasons; ++i) {
    const std::string why(prefetch::name_of(static_cast<prefetch::reason>(i)));
    into.counter("cenote_prefetch_ended_total", "Prefetches that ended, by why.", from.by_reason[i], {{"reason", why}});
  }
  into.gauge("cenote_prefetch_in_flight_bytes", "Bytes of loads under way.", from.bytes_in_flight);
  into.gauge("cenote_prefetch_waiting", "Prefetches that are not answered yet.", from.waiting);
  into.gauge("cenote_prefetch_held_bytes", "Kept from eviction until clients take it over.", dram.held_bytes);
  into.gauge("cenote_prefetch_bytes_per_second", "How fast loads came up, as measured last.", from.bytes_per_s);
  into.gauge("cenote_prefetch_latency_seconds", "Time until the first load of several came, as measured last.",
             from.latency_s);
  into.gauge("cenote_prefetch_measured_age_seconds", "Time since a load came.", from.measured_age_s);
  into.counter_of("cenote_prefetch_waited_seconds_total", "Waited for answers to prefetches that were compared.",
                  from.waited_s);
  into.counter_of("cenote_prefetch_recompute_seconds_total", "What computing all of theirs would have taken.",
                  from.recompute_s);
  into.counter_of("cenote_prefetch_saved_seconds_total", "Of that, what came and need not be computed.", from.saved_s);
  into.counter_of("cenote_prefetch_lost_seconds_total", "Waited longer than was saved, by those that did.",
                  from.lost_s);
}

void add_nvme(collection& into, const nvme_report& nvme) {
  into.gauge("cenote_nvme_capacity_bytes", "Disk space for blocks.", nvme.store.capacity);
  into.gauge("cenote_nvme_used_bytes", "Disk space of blocks.", nvme.store.used);
  into.gauge("cenote_nvme_blocks", "Blocks on disk.", nvme.store.blocks);
  into.gauge("cenote_nvme_in_flight_bytes", "Bytes of transfers under way.", nvme.store.bytes_in_flight);
  into.seconds("cenote_nvme_transfer_seconds", "From the hand-over to a path until a transfer's end was heard of.",
               nvme.times.reads, {{"what", "read"}});
  into.seconds("cenote_nvme_transfer_seconds", "", nvme.times.writes, {{"what", "write"}});
  add_counters(into, nvme.store.counters, nvme_rows);
  into.counter("cenote_nvme_failed_saves_total", "Writes of metadata that failed.", nvme.failed_saves);
  into.counter("cenote_nvme_failed_removals_total", "Removals answered as not done.", nvme.failed_removals);
  for (std::size_t i = 0; i < nvme.paths.size() && i < nvme.store.paths.size(); ++i) {
    const nvme::path_status& path = nvme.store.paths[i];
    const labels of{{"path", nvme.paths[i].directory}};
    const bool serves = path.state == nvme::path_state::serving;
    into.gauge("cenote_nvme_path_serving", "1 when a path reads and writes, else 0.", serves ? 1.0 : 0.0, of);
    into.gauge("cenote_nvme_path_capacity_bytes", "Space of a path for blocks.", path.capacity, of);
    into.gauge("cenote_nvme_path_used_bytes", "Space of a path's blocks.", path.used, of);
    into.gauge("cenote_nvme_path_pending_removals", "Removals that a path has not written down in its metadata.",
               nvme.paths[i].pending_removals, of);
    into.counter("cenote_nvme_path_errors_total", "Errors that a path's disk gave.", path.errors, of);
  }
}

void add_server(collection& into, const server_report& server) {
  into.gauge("cenote_server_connections", "Connections to the node's socket.", server.connections);
  into.gauge("cenote_server_descriptors_in_flight", "Descriptors that were sent and are not read.",
             server.descriptors_in_flight);
  into.counter("cenote_server_turned_away_total", "Connections of who may not attach, or has too many.",
               server.turned_away);
  into.counter("cenote_server_held_back_total", "Requests that waited until descriptors were read.", server.held_back);
  into.counter("cenote_server_unread_total", "Connections closed because they did not read.", server.unread);
  into.counter("cenote_server_failures_total", "Requests that an exception ended.", server.failures);
}

}  // namespace

std::string metrics_text(const node_report& report, const server_context& context, const server_report& server) {
  collection all;
  const std::chrono::duration<double> up = std::chrono::system_clock::now() - context.node_started;
  all.gauge("cenote_build_info", "1, with the version.", 1.0, {{"version", CENOTE_VERSION}});
  all.gauge("cenote_uptime_seconds", "Since the node was started.", up.count());
  all.counter("cenote_worker_restarts_total", "Workers that ended and were started anew.", context.restarts);
  all.counter("cenote_worker_exceptions_total", "Exceptions that ended a piece of work of this worker.",
              context.exceptions->load());
  all.gauge("cenote_queued_messages", "Messages that wait in the inboxes of the worker's actors.", report.queued);
  all.gauge("cenote_sessions", "Clients that are attached.", report.dram.sessions.size());
  add_server(all, server);
  add_dram(all, report.dram);
  const dram::populate_status populated = context.populated();
  all.gauge("cenote_dram_populated_bytes", "Memory of slabs, and ready for slabs, that is touched.", populated.bytes);
  all.gauge("cenote_dram_populate_total_bytes", "What there is of it when all is touched.", populated.total);
  all.gauge("cenote_dram_ready_bytes", "Touched, and no slab yet.", populated.ready);
  all.seconds("cenote_dram_batch_seconds", "How long the tier's actor was busy with a session's batch.",
              report.batch_times);
  add_instances(all, report.dram);
  if (report.nvme) add_nvme(all, *report.nvme);
  add_prefetch(all, report.prefetch, report.dram);
  return all.text();
}

}  // namespace cenote
