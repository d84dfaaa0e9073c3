#include "services/manager/service/manager_page.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <variant>

#include "core/json_writer.hpp"
#include "core/version.hpp"

namespace cenote::manager {

namespace {

constexpr std::size_t most_instances = 4096;  // with series of their own

double as_value(std::uint64_t number) {
  return static_cast<double>(number);
}

double age_of(const usage_report& usage) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - usage.time).count();
}

void add_calls(const call_counts& calls, http::metric_families& page) {
  for (const rpc_row& row : rpc_rows) {
    const auto record = calls.record_of(row.call);
    const std::string call = std::string(name_of(row.service)) + "." + std::string(row.name);
    for (const auto& [code, count] : record.answers) {
      page.counter("cenote_manager_requests_total", "Calls that were answered, by their code.", as_value(count),
                   {{"rpc", call}, {"code", std::string(name_of(code))}});
    }
    if (record.times.count() == 0) continue;
    page.seconds("cenote_manager_request_seconds", "Times from a request's body to its answer's last byte.",
                 record.times, {{"rpc", call}});
  }
  page.counter("cenote_manager_lookup_keys_total", "Keys of lookups.", as_value(calls.keys()));
  page.counter("cenote_manager_lookup_hits_total", "Of these, keys in the answers.", as_value(calls.hits()));
}

void add_group(const quota_report& group, http::metric_families& page) {
  const http::metric_labels labels{{"group", group.name}};
  page.figures(group, labels);
  page.gauge("cenote_manager_group_paused", "1 while its reclaim is paused.", group.is_paused ? 1 : 0, labels);
  for (const type_usage& each : group.types) {
    const http::metric_labels both{{"group", group.name}, {"type", std::string(name_of(each.type))}};
    page.figures(each, both);
    if (each.quota == 0) continue;
    page.gauge("cenote_manager_group_type_quota_bytes", figure_of<&type_usage::quota>().help, as_value(each.quota),
               both);
  }
}

void add_storage(const storage_report& storage, http::metric_families& page) {
  const http::metric_labels labels{{"storage", storage.name}, {"type", std::string(name_of(storage.type))}};
  const bool is_up = storage.is_enabled && is_readable(storage.condition);
  page.gauge("cenote_manager_storage_up", "1 while a storage is enabled and works.", is_up ? 1 : 0, labels);
  page.gauge("cenote_manager_storage_full", "1 while it takes no new writes since it is nearly full.",
             storage.condition == storage_condition::full ? 1 : 0, labels);
  page.figures(storage, labels);
  if (storage.capacity == 0) return;
  page.gauge("cenote_manager_storage_capacity_bytes", figure_of<&storage_report::capacity>().help,
             as_value(storage.capacity), labels);
}

/// All figures of a report, by the names that their paths end with.
template <class Report>
void write_figures(const Report& report, json_writer& json) {
  for (const figure<Report>& row : figure_table<Report>::rows) {
    json.name(path_in_element(row.path));
    json.number(report.*std::get<std::uint64_t Report::*>(row.value));
  }
}

void write_group(const quota_report& group, json_writer& json) {
  json.begin_object();
  json.name("name");
  json.text(group.name);
  write_figures(group, json);
  json.name("reclaim_paused");
  json.boolean(group.is_paused);
  json.name("types");
  json.begin_list();
  for (const type_usage& each : group.types) {
    json.begin_object();
    json.name("type");
    json.text(name_of(each.type));
    write_figures(each, json);
    json.end_object();
  }
  json.end_list();
  json.end_object();
}

void write_instance(const instance_report& instance, json_writer& json) {
  json.begin_object();
  json.name("id");
  json.text(instance.id);
  json.name("group");
  json.text(instance.group);
  write_figures(instance, json);
  json.end_object();
}

void write_storage(const storage_report& storage, json_writer& json) {
  json.begin_object();
  json.name("name");
  json.text(storage.name);
  json.name("type");
  json.text(name_of(storage.type));
  json.name("enabled");
  json.boolean(storage.is_enabled);
  json.name("condition");
  json.text(name_of(storage.condition));
  write_figures(storage, json);
  json.name("failure");
  json.text(storage.failure);
  json.end_object();
}

template <class Rows, class Write>
void write_list(json_writer& json, std::string_view name, const Rows& rows, Write&& write) {
  json.name(name);
  json.begin_list();
  for (const auto& each : rows) write(each, json);
  json.end_list();
}

}  // namespace

http::metric_families metrics_of(const page_sources& sources) {
  http::metric_families page;
  page.gauge("cenote_build_info", "1, with the version.", 1, {{"version", std::string(product_version())}});
  page.gauge("cenote_manager_ready", "1 while writes are taken.", sources.view.is_ready ? 1 : 0);
  page.gauge("cenote_manager_leader", "1 while this manager leads; one that is alone always does.", 1);
  page.gauge("cenote_manager_epoch", "Epoch of the journal.", sources.view.epoch);
  page.gauge("cenote_manager_usage_age_seconds", "Age of the figures of groups, instances and storages.",
             age_of(sources.usage));
  for (const manager_figure& row : manager_figure_rows) {
    const std::string name = "cenote_manager_" + std::string(row.metric);
    const double value = as_value((sources.figures.*row.value).load(std::memory_order_relaxed));
    page.add(row.metric.ends_with("_total") ? figure_kind::counter : figure_kind::gauge, name, row.summary, value, {});
  }
  for (std::size_t i = 0; i < evict_reasons.size(); ++i) {
    page.counter(
        "cenote_manager_evictions_total",
        "Blocks that were evicted since the last recovery, by what was over its level: `bytes` of the group, of a "
        "`type`, of a `storage`, `keys` of an instance, `time` to live.",
        as_value(sources.figures.evicted_for[i].load(std::memory_order_relaxed)),
        {{"reason", std::string(evict_reasons[i].name)}});
  }
  page.counter("cenote_manager_trace_dropped_lines_total", "Lines of `manager.trace_file` that found no room.",
               as_value(sources.dropped_lines));
  page.seconds("cenote_manager_journal_seconds", "Times of the journal's batches.", sources.figures.journal_times);
  add_calls(sources.calls, page);
  for (const quota_report& each : sources.usage.groups) add_group(each, page);
  for (const storage_report& each : sources.usage.storages) add_storage(each, page);
  const std::size_t shown = std::min(sources.usage.instances.size(), most_instances);
  for (std::size_t i = 0; i < shown; ++i) {
    const instance_report& each = sources.usage.instances[i];
    page.figures(each, {{"instance", each.id}, {"group", each.group}});
  }
  return page;
}

void append_status(const page_sources& sources, std::string& out) {
  json_writer json(out);
  json.begin_object();
  json.name("version");
  json.text(product_version());
  json.name("ready");
  json.boolean(sources.view.is_ready);
  json.name("epoch");
  json.number(sources.view.epoch);
  json.name("usage_age_seconds");
  json.real(age_of(sources.usage));
  for (const manager_figure& row : manager_figure_rows) {
    json.name(row.name);
    json.number((sources.figures.*row.value).load(std::memory_order_relaxed));
  }
  json.name("evicted_for");
  json.begin_object();
  for (std::size_t i = 0; i < evict_reasons.size(); ++i) {
    json.name(evict_reasons[i].name);
    json.number(sources.figures.evicted_for[i].load(std::memory_order_relaxed));
  }
  json.end_object();
  json.name("trace_dropped_lines");
  json.number(sources.dropped_lines);
  json.name("journal_p99_seconds");
  json.real(static_cast<double>(sources.figures.journal_times.quantile(0.99)) / 1e9);
  json.name("lookup_keys");
  json.number(sources.calls.keys());
  json.name("lookup_hits");
  json.number(sources.calls.hits());
  write_list(json, "groups", sources.usage.groups, write_group);
  write_list(json, "storages", sources.usage.storages, write_storage);
  write_list(json, "instances", sources.usage.instances, write_instance);
  json.end_object();
  out.push_back('\n');
}

}  // namespace cenote::manager
