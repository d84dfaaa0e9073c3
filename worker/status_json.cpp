#include "worker/status_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/version.hpp"

namespace cenote {

namespace {

using nlohmann::json;

double seconds_since(std::chrono::system_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::system_clock::now() - then).count();
}

/// The member of `object` at "counters.commits"; made where it is missing.
json& at_path(json& object, std::string_view path) {
  json* found = &object;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    found = &(*found)[std::string(path.substr(0, dot))];
    path.remove_prefix(dot + 1);
  }
  return (*found)[std::string(path)];
}

/// `into`: the whole status, or of a report that stands in a list its element.
template <class Report>
void put_figures(json& into, const Report& report) {
  for (const figure<Report>& row : figure_table<Report>::rows) {
    if (row.path.empty()) continue;
    std::visit([&](auto member) { at_path(into, path_in_element(row.path)) = report.*member; }, row.value);
  }
}

/// In microseconds: what a person reads.
json times_of(const histogram& times) {
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return {{"count", times.count()},
          {"mean_us", times.mean() / 1e3},
          {"p50_us", us(times.quantile(0.5))},
          {"p90_us", us(times.quantile(0.9))},
          {"p99_us", us(times.quantile(0.99))},
          {"max_us", us(times.maximum())}};
}

/// `into`: as for put_figures().
void put_values(json& into, const std::vector<figure_value>& values) {
  for (const figure_value& each : values) {
    if (each.path.empty()) continue;
    std::visit([&](auto value) { at_path(into, path_in_element(each.path)) = value; }, each.value);
  }
}

json part_of(const report_part& part) {
  json one = json::object();
  for (const report_text& each : part.texts) {
    std::visit([&](const auto& value) { at_path(one, path_in_element(each.path)) = value; }, each.value);
  }
  put_values(one, part.figures);
  return one;
}

void put_described(json& all, const tier_report& tier, const status_reader& reader) {
  for (const report_text& each : tier.texts) {
    std::visit([&](const auto& value) { at_path(all, each.path) = value; }, each.value);
  }
  put_values(all, tier.gauges);
  put_values(all, tier.counters);
  for (const report_times& each : tier.times) at_path(all, each.path) = times_of(each.of);
  for (const report_part& each : tier.parts) {
    if (reader.may_see(each.owner)) at_path(all, each.list).push_back(part_of(each));
  }
}

/// A source for each of the tiers below, in their order.
void put_prefetch(json& all, const node_report& report) {
  const prefetch::status& status = report.prefetch;
  put_figures(all, status);
  all["prefetch"]["loads"] = times_of(report.prefetch.load_times);
  json& sources = all["prefetch"]["sources"] = json::array();
  for (std::size_t edge = 0; edge < std::min(report.lower.size(), status.sources.size()); ++edge) {
    if (!report.lower[edge]) continue;
    json one = {{"tier", report.lower[edge]->name}};
    put_figures(one, status.sources[edge]);
    sources.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < prefetch::reasons; ++i) {
    all["prefetch"]["ended"][prefetch::name_of(static_cast<prefetch::reason>(i))] = status.by_reason[i];
  }
}

void put_dram(json& all, const node_facts& facts) {
  const blocks::store_status& dram = facts.report->dram;
  put_figures(all, dram);
  put_figures(all, dram.counters);
  put_figures(all, facts.populated);
  all["dram"]["populate"]["state"] = blocks::name_of(facts.populated.at);
  all["dram"].update({{"free", dram.capacity - std::min(dram.capacity, dram.used)},
                      {"policy", facts.dram.policy},
                      {"high_water", facts.dram.high_water},
                      {"low_water", facts.dram.low_water},
                      {"evicted", dram.counters.evicted},
                      {"batches", times_of(facts.report->batch_times)}});
}

json instance_of(const blocks::instance_status& instance) {
  json one = {{"id", instance.id}, {"group", instance.group}, {"account", instance.account}};
  put_figures(one, instance);
  if (instance.idle) one["idle_s"] = seconds_of(*instance.idle);
  if (instance.given_up) one["given_up_in_s"] = seconds_of(*instance.given_up);
  if (!instance.chosen) return one;
  one["policy"] = {{"at_work", instance.chosen->policy},
                   {"switches", instance.chosen->switches},
                   {"requests", instance.chosen->requests},
                   {"sampled", instance.chosen->sampled}};
  for (const auto& score : instance.chosen->scores) {
    one["policy"]["saved_blocks"][std::string(score.policy)] = score.blocks;
  }
  return one;
}

/// The curves of instances whose requests are watched.
void put_curves(json& all, const blocks::store_status& dram) {
  json& groups = all["optimize"]["groups"] = json::array();
  for (const blocks::instance_status& each : dram.instances) {
    if (!each.curve) continue;
    json points = json::array();
    for (const blocks::curve_point& point : each.curve->points) {
      points.push_back({{"capacity", point.capacity}, {"miss_ratio", point.miss_ratio}, {"error", point.error}});
    }
    json shares = json::array();
    for (const blocks::share_point& share : each.curve->shares) {
      shares.push_back({{"share", share.share}, {"capacity", share.capacity}});
    }
    json gains = json::array();
    for (const blocks::curve_gain& gain : each.curve->gains) {
      gains.push_back({{"tier", gain.tier}, {"gain_per_gib", gain.hit_ratio}, {"error", gain.error}});
    }
    groups.push_back({{"group", each.id},
                      {"requests", each.curve->requests},
                      {"capacity_now", each.curve->capacity},
                      {"block_bytes", each.curve->block_bytes},
                      {"points", std::move(points)},
                      {"capacity_for", std::move(shares)},
                      {"gains", std::move(gains)}});
  }
}

json account_of(const blocks::account_status& account) {
  json one = {{"name", account.name}, {"priority", name_of(account.priority)}};
  put_figures(one, account);
  return one;
}

json user_of(const blocks::account_status& user) {
  json one = {{"uid", user.uid.value_or(0)}, {"account", user.name}};
  put_figures(one, user);
  return one;
}

json session_of(const blocks::session_status& session, const std::vector<session_report>& reports) {
  json one = {{"id", session.number},
              {"instance", session.instance},
              {"state", session.is_ended    ? "ended"
                        : session.connected ? "attached"
                                            : "disconnected"}};
  put_figures(one, session);
  if (session.pins > 0) one["oldest_pin_s"] = seconds_of(session.oldest_pin);
  const auto report = std::find_if(reports.begin(), reports.end(),
                                   [&](const session_report& each) { return each.session->number == session.number; });
  if (report == reports.end()) return one;
  const session_resources& resources = *report->session;
  one["pid"] = resources.pid;
  one["uid"] = resources.uid;
  one["client"] = resources.client_name;
  one["pin_slots"] = resources.pin_slots;
  one["age_s"] = seconds_since(resources.attached);
  put_figures(one, *report);
  one["touches_dropped"] = resources.view.header().touches_dropped.load(std::memory_order_relaxed);
  return one;
}

/// The decisions about copies; rates in bytes per second.
json copies_of(const machine_decisions& decisions) {
  json all = json::object();
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    const copy_decision decision = decisions.decision_of(kind);
    if (decision.number == 0) continue;
    json& one = all[std::string(name_of(kind))];
    one = {{"routine", name_of_candidate(kind, decision.number)},
           {"bytes_per_s", decision.rate_of(decision.number)},
           {"best_bytes_per_s", decision.best_rate()}};
    if (decision.least_bytes != 0) one["least_bytes"] = decision.least_bytes;
    for (const candidate_rate& each : decision.rates)
      one["candidates"][name_of_candidate(kind, each.number)] = each.bytes_per_s;
  }
  return all;
}

template <class List, class Make>
json list_of(const List& list, const Make& make) {
  json all = json::array();
  for (const auto& each : list) all.push_back(make(each));
  return all;
}

}  // namespace

std::string status_json(const node_facts& facts, const status_reader& reader) {
  const blocks::store_status& dram = facts.report->dram;
  json all;
  all["node"] = {{"pid", ::getppid()},
                 {"worker_pid", ::getpid()},
                 {"epoch", facts.epoch},
                 {"version", product_version()},
                 {"state", "serving"},
                 {"socket", facts.socket_path},
                 {"metrics", facts.metrics.address}};
  if (!facts.metrics.problem.empty()) all["node"]["metrics_problem"] = facts.metrics.problem;
  put_figures(all, facts.figures);
  put_figures(all, facts.server);
  put_figures(all, facts.trace);
  if (!facts.collector.empty()) all["trace"]["collector"] = facts.collector;
  put_dram(all, facts);
  all["copies"] = copies_of(*facts.copies);
  for (const tier_report_ptr& each : facts.report->described()) put_described(all, *each, reader);
  put_prefetch(all, *facts.report);
  all["instances"] = list_of(dram.instances, instance_of);
  put_figures(all, facts.report->watch);
  put_curves(all, dram);
  all["groups"] = list_of(dram.accounts, account_of);
  all["users"] = list_of(dram.users, user_of);
  all["sessions"] = list_of(dram.sessions, [&](const auto& each) { return session_of(each, facts.report->sessions); });
  return all.dump(-1, ' ', false, json::error_handler_t::replace);  // names of instances may be older than the rules
}

}  // namespace cenote
