#include "worker/status_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cenote {

namespace {

using nlohmann::json;

double seconds_since(std::chrono::system_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::system_clock::now() - then).count();
}

json counters_of(const dram::store_counters& counters) {
  return {{"commits", counters.commits},
          {"duplicates", counters.duplicates},
          {"evicted", counters.evicted},
          {"removed", counters.removed},
          {"moved", counters.moved},
          {"slabs_moved", counters.slabs_moved},
          {"pinned_victims", counters.pinned_victims},
          {"refused_commits", counters.refused_commits},
          {"revoked_reservations", counters.revoked_reservations},
          {"revoked_grants", counters.revoked_grants},
          {"no_space", counters.no_space},
          {"collisions", counters.collisions},
          {"reclaimed_blocks", counters.reclaimed_blocks},
          {"quarantine_freed", counters.quarantine_freed},
          {"touches", counters.touches},
          {"touches_dropped", counters.touches_dropped},
          {"reserve_refused", counters.reserve_refused},
          {"victims_examined", counters.victims_examined},
          {"pin_scans", counters.pin_scans},
          {"checksum_errors", counters.checksum_errors},
          {"demoted", counters.demoted},
          {"demotions_dropped", counters.demotions_dropped},
          {"promoted", counters.promoted},
          {"promotions_failed", counters.promotions_failed},
          {"waits", counters.waits},
          {"instances_given_up", counters.instances_given_up},
          {"put_waits", counters.put_waits}};
}

json prefetch_of(const prefetch::status& from, const dram::store_status& dram) {
  json by_reason;
  for (std::size_t i = 0; i < prefetch::reasons; ++i) {
    by_reason[prefetch::name_of(static_cast<prefetch::reason>(i))] = from.by_reason[i];
  }
  return {{"started", from.started},
          {"finished", from.finished},
          {"blocks_wanted", from.wanted},
          {"blocks_loaded", from.loaded},
          {"blocks_lost", from.lost},
          {"read_ahead", from.read_ahead},
          {"refused", from.refused},
          {"unclaimed", from.unclaimed},
          {"not_held", dram.counters.not_held},
          {"ended", std::move(by_reason)},
          {"bytes_in_flight", from.bytes_in_flight},
          {"waiting", from.waiting},
          {"held", from.held},
          {"held_bytes", dram.held_bytes},
          {"bytes_per_s", from.bytes_per_s},
          {"latency_s", from.latency_s},
          {"measured_age_s", from.measured_age_s},
          {"compared", from.compared},
          {"probes", from.probes},
          {"waited_s", from.waited_s},
          {"recompute_s", from.recompute_s},
          {"saved_s", from.saved_s},
          {"lost_s", from.lost_s}};
}

std::string_view name_of(nvme::path_state state) {
  switch (state) {
    case nvme::path_state::opening: return "opening";
    case nvme::path_state::serving: return "serving";
    case nvme::path_state::retired: return "retired";
    case nvme::path_state::failed: return "failed";
  }
  return "?";
}

std::string_view name_of(dram::priority priority) {
  switch (priority) {
    case dram::priority::low: return "low";
    case dram::priority::normal: return "normal";
    case dram::priority::high: return "high";
  }
  return "?";
}

/// In microseconds: what a person reads.
json times_of(const histogram& of) {
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return {{"count", of.count()},
          {"mean_us", of.mean() / 1e3},
          {"p50_us", us(of.quantile(0.5))},
          {"p90_us", us(of.quantile(0.9))},
          {"p99_us", us(of.quantile(0.99))},
          {"max_us", us(of.maximum())}};
}

json nvme_of(const nvme_report& nvme) {
  const nvme::store_counters& counters = nvme.store.counters;
  json all = {{"capacity", nvme.store.capacity},
              {"used", nvme.store.used},
              {"blocks", nvme.store.blocks},
              {"bytes_in_flight", nvme.store.bytes_in_flight},
              {"reads", times_of(nvme.times.reads)},
              {"writes", times_of(nvme.times.writes)},
              {"counters",
               {{"written", counters.written},
                {"written_bytes", counters.written_bytes},
                {"read", counters.read},
                {"read_bytes", counters.read_bytes},
                {"dropped", counters.dropped},
                {"unadmitted", counters.unadmitted},
                {"evicted", counters.evicted},
                {"expired", counters.expired},
                {"removed", counters.removed},
                {"checksum_errors", counters.checksum_errors},
                {"io_errors", counters.io_errors},
                {"misses", counters.misses},
                {"loaded", counters.loaded},
                {"refused_at_load", counters.refused_at_load},
                {"failed_saves", nvme.failed_saves},
                {"failed_removals", nvme.failed_removals}}},
              {"paths", json::array()}};
  for (std::size_t i = 0; i < nvme.paths.size() && i < nvme.store.paths.size(); ++i) {
    const nvme::path_status& state = nvme.store.paths[i];
    all["paths"].push_back({{"directory", nvme.paths[i].directory},
                            {"engine", nvme.paths[i].engine},
                            {"direct", nvme.paths[i].direct},
                            {"registered_bytes", nvme.paths[i].registered_bytes},
                            {"state", name_of(state.state)},
                            {"capacity", state.capacity},
                            {"metadata_capacity", nvme.paths[i].metadata_bytes},
                            {"used", state.used},
                            {"blocks", state.blocks},
                            {"errors", state.errors},
                            {"bad_bytes", state.bad_bytes},
                            {"takes_writes", state.takes_writes},
                            {"pending_removals", nvme.paths[i].pending_removals},
                            {"last_error", state.why}});
  }
  return all;
}

json populate_of(const dram::populate_status& populated) {
  return {{"state", dram::name_of(populated.at)},
          {"bytes", populated.bytes},
          {"total", populated.total},
          {"ready", populated.ready}};
}

json session_of(const dram::session_status& session, const std::vector<session_report>& reports) {
  json one = {{"id", session.number},       {"instance", session.instance},
              {"pins", session.pins},       {"grants", session.grants},
              {"writing", session.writing}, {"state", session.connected ? "attached" : "disconnected"}};
  if (session.pins > 0) one["oldest_pin_s"] = session.oldest_pin / 10.0;
  const auto report = std::find_if(reports.begin(), reports.end(),
                                   [&](const session_report& each) { return each.session->number == session.number; });
  if (report == reports.end()) return one;
  const session_resources& resources = *report->session;
  one["pid"] = resources.pid;
  one["uid"] = resources.uid;
  one["client"] = resources.client_name;
  one["pin_slots"] = resources.pin_slots;
  one["age_s"] = seconds_since(resources.attached);
  one["batches"] = report->batches;
  one["entries"] = report->entries;
  one["touches_dropped"] = resources.view.header().touches_dropped.load(std::memory_order_relaxed);
  return one;
}

}  // namespace

std::string status_json(const node_report& report, const config::node_config& config, const server_context& context,
                        const server_report& server) {
  const dram::store_status& dram = report.dram;
  json all;
  all["node"] = {{"pid", ::getppid()},
                 {"worker_pid", ::getpid()},
                 {"epoch", context.epoch},
                 {"restarts", context.restarts},
                 {"exceptions", context.exceptions->load()},
                 {"queued_messages", report.queued},
                 {"version", CENOTE_VERSION},
                 {"uptime_s", seconds_since(context.node_started)},
                 {"state", "serving"},
                 {"socket", context.socket_path},
                 {"metrics", context.metrics_address}};
  all["server"] = {{"connections", server.connections},
                   {"closing", server.closing},
                   {"descriptors_in_flight", server.descriptors_in_flight},
                   {"turned_away", server.turned_away},
                   {"held_back", server.held_back},
                   {"unread", server.unread},
                   {"failures", server.failures}};
  all["dram"] = {{"capacity", dram.capacity},
                 {"assigned", dram.assigned},
                 {"used", dram.used},
                 {"free", dram.capacity - std::min(dram.capacity, dram.used)},
                 {"slabs", dram.slabs},
                 {"policy", config.dram.policy},
                 {"high_water", config.dram.high_water},
                 {"low_water", config.dram.low_water},
                 {"evicted", dram.counters.evicted},
                 {"expired", dram.counters.expired},
                 {"cached", dram.cached},
                 {"blocks",
                  {{"present", dram.present},
                   {"granted", dram.granted},
                   {"pending", dram.pending},
                   {"zombie", dram.zombie},
                   {"quarantined", dram.quarantined},
                   {"loading", dram.loading},
                   {"free", dram.free}}},
                 {"writing_bytes", dram.writing_bytes},
                 {"loading_bytes", dram.loading_bytes},
                 {"populate", populate_of(context.populated())},
                 {"batches", times_of(report.batch_times)}};
  if (report.nvme) all["nvme"] = nvme_of(*report.nvme);
  all["prefetch"] = prefetch_of(report.prefetch, dram);
  all["instances"] = json::array();
  for (const dram::instance_status& each : dram.instances) {
    json one = {{"id", each.id},
                {"group", each.group},
                {"account", each.account},
                {"blocks", each.present},
                {"free", each.free},
                {"bytes", each.bytes},
                {"slabs", each.slabs},
                {"sessions", each.sessions},
                {"pending", each.pending},
                {"zombie", each.zombie},
                {"quarantined", each.quarantined},
                {"index_slots", each.index_slots},
                {"index_entries", each.index_entries}};
    if (each.idle) one["idle_s"] = *each.idle / 10.0;
    if (each.given_up) one["given_up_in_s"] = *each.given_up / 10.0;
    if (each.chosen) {
      one["policy"] = {{"at_work", each.chosen->policy},
                       {"switches", each.chosen->switches},
                       {"requests", each.chosen->requests},
                       {"sampled", each.chosen->sampled}};
      for (const auto& score : each.chosen->scores)
        one["policy"]["saved_blocks"][std::string(score.policy)] = score.blocks;
    }
    all["instances"].push_back(std::move(one));
  }
  all["groups"] = json::array();
  for (const dram::account_status& each : dram.accounts) {
    all["groups"].push_back({{"name", each.name},
                             {"quota", each.quota},
                             {"used", each.used},
                             {"kept", each.kept},
                             {"reserved", each.reserved},
                             {"priority", name_of(each.priority)}});
  }
  all["users"] = json::array();
  for (const dram::account_status& each : dram.users) {
    all["users"].push_back({{"uid", each.uid.value_or(0)},
                            {"account", each.name},
                            {"quota", each.quota},
                            {"used", each.used},
                            {"kept", each.kept},
                            {"reserved", each.reserved}});
  }
  all["sessions"] = json::array();
  for (const dram::session_status& each : dram.sessions) all["sessions"].push_back(session_of(each, report.sessions));
  all["counters"] = counters_of(dram.counters);
  return all.dump(-1, ' ', false, json::error_handler_t::replace);  // names of instances may be older than the rules
}

}  // namespace cenote
