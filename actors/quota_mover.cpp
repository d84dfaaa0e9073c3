#include "actors/quota_mover.hpp"

#include <algorithm>
#include <utility>

#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto patience = std::chrono::seconds(10);  // with a tier that is busy
constexpr double average_intervals = simulation::quota_moves::trial_intervals;

/// The account that instances of a group pay to; null: none is open, or it is a user's part of one.
const blocks::account_status* account_named(const blocks::store_status& tier, const std::string& name) {
  const auto found = std::ranges::find(tier.accounts, name, &blocks::account_status::name);
  return found == tier.accounts.end() ? nullptr : &*found;
}

/// Whether all instances of a group have curves.
bool is_watched(const blocks::store_status& tier, const std::string& name) {
  return std::ranges::all_of(tier.instances,
                             [&](const auto& each) { return each.account != name || each.curve.has_value(); });
}

std::vector<simulation::quota_group::point> points_of(const blocks::curve_status& curve) {
  std::vector<simulation::quota_group::point> points;
  points.reserve(curve.points.size());
  for (const blocks::curve_point& each : curve.points) {
    points.push_back({.bytes = static_cast<double>(each.capacity) * static_cast<double>(curve.block_bytes),
                      .hit_ratio = 1 - each.miss_ratio,
                      .error = each.error});
  }
  return points;
}

}  // namespace

quota_reports::use quota_reports::use_since_last(const blocks::instance_status& instance) const {
  const bool has_tokens = instance.match_tokens > 0;  // its spec may name none
  use now{.requested = has_tokens ? instance.match_tokens : instance.match_keys,
          .hits = has_tokens ? instance.match_resident_tokens : instance.match_resident};
  if (const auto last = last_.find(instance.curve->instance); last != last_.end()) {
    const use& before = last->second;
    now.new_requested = now.requested - std::min(now.requested, before.requested);
    now.new_hits = now.hits - std::min(now.hits, before.hits);
    now.average = before.average + (static_cast<double>(now.new_requested) - before.average) / average_intervals;
  }
  return now;
}

std::vector<simulation::quota_group> quota_reports::groups(const blocks::store_status& tier,
                                                           const std::vector<blocks::curve_status>& curves,
                                                           const std::map<std::string, quota_limits>& limits) {
  std::vector<simulation::quota_group> all;
  std::map<std::uint32_t, use> present;
  for (const auto& [name, limit] : limits) {
    const blocks::account_status* account = account_named(tier, name);
    if (account == nullptr || account->quota == 0 || !is_watched(tier, name)) continue;
    simulation::quota_group group{
        .name = name, .quota = account->quota, .low = limit.low, .high = limit.high, .members = {}};
    std::uint64_t bytes = 0;
    for (const blocks::instance_status& each : tier.instances) bytes += each.account == name ? each.bytes : 0;
    for (const blocks::instance_status& each : tier.instances) {
      if (each.account != name || bytes == 0) continue;
      const auto curve = std::ranges::find(curves, each.curve->instance, &blocks::curve_status::instance);
      const use now = use_since_last(each);
      present[each.curve->instance] = now;
      group.requested += now.new_requested;
      group.hits += now.new_hits;
      group.members.push_back(
          {.share = static_cast<double>(each.bytes) / static_cast<double>(bytes),
           .tokens = now.average,
           .points = curve == curves.end() ? std::vector<simulation::quota_group::point>() : points_of(*curve)});
    }
    if (!group.members.empty()) all.push_back(std::move(group));  // an engine that is away keeps its memory
  }
  last_ = std::move(present);
  return all;
}

quota_mover::quota_mover(caf::actor_config& config, dram_tier_actor dram, live_curves_actor curves,
                         const config_ptr& settings)
    : quota_mover_actor::base(config),
      dram_(std::move(dram)),
      curves_(std::move(curves)),
      interval_(settings->optimize.interval) {
  set_limits(*settings);
  link_to(curves_);
}

void quota_mover::on_exit() {
  dram_ = nullptr;
  curves_ = nullptr;
}

quota_mover::behavior_type quota_mover::make_behavior() {
  delayed_send(this, interval_, tick_atom_v);
  return {
      [this](tick_atom) {
        delayed_send(this, interval_, tick_atom_v);
        look();
      },
      [this](reload_atom, const config_ptr& settings) {
        set_limits(*settings);
        moves_ = {};  // the quotas are those of the configuration again, and what was measured is of others
      },
  };
}

void quota_mover::set_limits(const config::node_config& settings) {
  limits_.clear();
  for (const auto& [name, group] : settings.groups) {
    if (group.quota_max != 0) limits_[name] = {.low = group.quota_min, .high = group.quota_max};
  }
}

void quota_mover::look() {
  const auto go_on = [this](const dram_report_ptr& tier) {
    request(curves_, patience, report_atom_v, tier)
        .then([this, tier](const curves_report_ptr& estimates) { decide(tier->store, estimates->curves); },
              [](const caf::error&) {});  // at the next interval, then
  };
  request(dram_, patience, report_atom_v).then(go_on, [](const caf::error&) {});
}

void quota_mover::decide(const blocks::store_status& tier, const std::vector<blocks::curve_status>& curves) {
  const auto groups = reports_.groups(tier, curves, limits_);
  if (const auto move = moves_.decide(groups); move && move->bytes > 0) carry_out(*move, groups);
}

void quota_mover::carry_out(const simulation::quota_move& move, const std::vector<simulation::quota_group>& groups) {
  const auto giver = std::ranges::find(groups, move.giver, &simulation::quota_group::name);
  const auto taker = std::ranges::find(groups, move.taker, &simulation::quota_group::name);
  send(dram_, quota_atom_v, move.giver, giver->quota - move.bytes);
  send(dram_, quota_atom_v, move.taker, taker->quota + move.bytes);
  if (move.is_undone) {
    log_info(logger("optimize"), "a move of quota is undone: fewer tokens were found",
             {{"from", move.giver},
              {"to", move.taker},
              {"bytes", move.bytes},
              {"found_before", move.baseline},
              {"found_after", move.measured}});
    return;
  }
  log_info(logger("optimize"), "quota is moved: the whole move would find more tokens in an interval",
           {{"from", move.giver},
            {"to", move.taker},
            {"bytes", move.bytes},
            {"tokens", move.gain},
            {"standard_error", move.error}});
}

}  // namespace cenote
