#include "actors/node.hpp"

#include <algorithm>

#include "actors/device_news.hpp"
#include "actors/gpu_report.hpp"
#include "actors/session.hpp"
#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto tier_deadline = std::chrono::seconds(5);
constexpr auto session_deadline = std::chrono::seconds(2);

/// Counts the answers of several requests and delivers one.
struct gathering {
  std::size_t open = 0;
  report_ptr report = std::make_shared<node_report>();
  std::vector<device_report> devices{};
  caf::typed_response_promise<report_ptr> promise;
  void one_less() {
    if (--open != 0) return;
    report->devices = describe_devices(devices);
    for (const device_report& each : devices) {
      if (!each.store) continue;
      const blocks::store_status& store = each.store->store;
      report->dram.instances.insert(report->dram.instances.end(), store.instances.begin(), store.instances.end());
      report->dram.sessions.insert(report->dram.sessions.end(), store.sessions.begin(), store.sessions.end());
      report->queued += each.store->queued;
    }
    promise.deliver(report);
  }
};

}  // namespace

node::node(caf::actor_config& config, dram_tier_actor dram, prefetch_actor prefetch, on_fatal fatal,
           std::vector<lower_tier> lower, cluster_actor cluster, consensus_actor groups, live_curves_actor curves)
    : node_actor::base(config),
      dram_(std::move(dram)),
      prefetch_(std::move(prefetch)),
      lower_(std::move(lower)),
      cluster_(std::move(cluster)),
      groups_(std::move(groups)),
      curves_(std::move(curves)),
      fatal_(std::move(fatal)) {}

void node::on_exit() {
  for (const auto& [number, each] : sessions_) anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
  sessions_.clear();
  for (const auto& [tier, each] : devices_) {
    if (!each.stack) continue;
    anon_send_exit(each.stack->planner, caf::exit_reason::user_shutdown);
    anon_send_exit(each.stack->top, caf::exit_reason::user_shutdown);
    anon_send_exit(each.stack->below.actor, caf::exit_reason::user_shutdown);
  }
  devices_.clear();
  anon_send_exit(prefetch_, caf::exit_reason::user_shutdown);
  prefetch_ = nullptr;
  anon_send_exit(dram_, caf::exit_reason::user_shutdown);
  dram_ = nullptr;
  for (const lower_tier& each : lower_) anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
  lower_.clear();
  if (groups_) anon_send_exit(groups_, caf::exit_reason::user_shutdown);
  groups_ = nullptr;
  if (curves_) anon_send_exit(curves_, caf::exit_reason::user_shutdown);
  curves_ = nullptr;
  cluster_ = nullptr;  // its host ends it, with the network
}

node::behavior_type node::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { went_down(down); });
  monitor(dram_);
  monitor(prefetch_);
  for (const lower_tier& each : lower_) monitor(each.actor);
  if (cluster_) monitor(cluster_);
  if (groups_) monitor(groups_);
  if (curves_) monitor(curves_);
  return {
      [this](open_atom, const session_ptr& resources) { return open(resources); },
      [this](release_atom, std::uint64_t number) { return release(number); },
      [this](report_atom) { return report(); },
      [this](drain_atom) { return drain(); },
      [this](add_tier_atom, const device_news_ptr& news) { take_news(*news); },
      [this](reload_atom, const config_ptr& config) {
        reloaded_ = config;
        send(dram_, reload_atom_v, config);
        for (const lower_tier& each : lower_) send(each.actor, reload_atom_v, config);
        send(prefetch_, reload_atom_v, config);
        for (const auto& [tier, each] : devices_) {
          if (each.stack) tell_reloaded(*each.stack);
        }
      },
  };
}

caf::result<session_actor> node::open(const session_ptr& resources) {
  if (sessions_.contains(resources->number)) {
    return caf::make_error(caf::sec::invalid_argument, "there is an actor of this session already");
  }
  const tier_number tier = tier_of(resources->instance);
  const dram_tier_actor top = top_of(tier);
  if (!top) return caf::make_error(caf::sec::invalid_argument, "the device's tier is not open");
  session_actor made = spawn<session>(resources, top, groups_);
  monitor(made);
  sessions_[resources->number] = {made, tier};
  return made;
}

/// Null: a device's that is not open.
dram_tier_actor node::top_of(tier_number tier) const {
  if (tier == 0) return dram_;
  const auto found = devices_.find(tier);
  return found == devices_.end() || !found->second.stack ? dram_tier_actor() : found->second.stack->top;
}

void node::take_news(const device_news& news) {
  learn(devices_[news.tier], news);
  if (!news.stack) return;
  monitor(news.stack->top);
  monitor(news.stack->below.actor);
  monitor(news.stack->planner);
  if (reloaded_) tell_reloaded(*news.stack);  // it was opened with the configuration of before
}

void node::tell_reloaded(const device_stack& stack) {
  send(stack.top, reload_atom_v, reloaded_);
  send(stack.planner, reload_atom_v, reloaded_);
}

caf::result<outcome> node::release(std::uint64_t number) {
  const auto found = sessions_.find(number);
  dram_tier_actor top;
  if (found != sessions_.end()) {
    // Asked to go, so its end is not an accident: forget it before it goes.
    top = top_of(found->second.tier);
    demonitor(found->second.actor.address());
    anon_send_exit(found->second.actor, caf::exit_reason::user_shutdown);
    sessions_.erase(found);
  }
  std::vector<dram_tier_actor> tops{top ? top : dram_};
  for (const auto& [tier, each] : devices_) {  // one whose attach ended early: nobody knows whose it is
    if (!top && each.stack) tops.push_back(each.stack->top);
  }
  auto promise = make_response_promise<outcome>();
  auto open = std::make_shared<std::size_t>(tops.size());
  for (const dram_tier_actor& each : tops) {
    request(each, tier_deadline, release_atom_v, number)
        .then(
            [promise, open](const outcome& freed) mutable {
              if (--*open == 0) promise.deliver(freed);
            },
            [promise](const caf::error& why) mutable { promise.deliver(why); });
  }
  return promise;
}

caf::result<report_ptr> node::report() {
  auto all = std::make_shared<gathering>();
  all->promise = make_response_promise<report_ptr>();
  all->report->queued = mailbox().queue().total_task_size();
  all->open = 2 + (cluster_ ? 1 : 0) + (groups_ ? 1 : 0) + lower_.size() + sessions_.size();

  for (const auto& [tier, each] : devices_) {
    const std::size_t place = all->devices.size();
    all->devices.push_back({.device = each.device, .phase = each.phase, .why = each.why});
    if (!each.stack) continue;
    all->open += 2;
    const auto ask_for = [&]<class Answer>(const auto& whom, Answer device_report::*member) {
      request(whom, tier_deadline, report_atom_v)
          .then(
              [all, place, member](const Answer& came) {
                all->devices[place].*member = came;
                all->one_less();
              },
              [all](const caf::error&) { all->one_less(); });
    };
    ask_for(each.stack->top, &device_report::store);
    ask_for(each.stack->below.actor, &device_report::below);
  }
  all->report->lower.resize(lower_.size());
  for (std::size_t edge = 0; edge < lower_.size(); ++edge) {
    request(lower_[edge].actor, tier_deadline, report_atom_v)
        .then(
            [all, edge](const tier_report_ptr& tier) {
              all->report->lower[edge] = tier;
              all->report->queued += tier->queued;
              all->one_less();
            },
            [all](const caf::error&) { all->one_less(); });
  }
  if (cluster_) {
    request(cluster_, tier_deadline, report_atom_v)
        .then(
            [all](const tier_report_ptr& cluster) {
              all->report->cluster = cluster;
              all->report->queued += cluster->queued;
              all->one_less();
            },
            [all](const caf::error&) { all->one_less(); });
  }
  if (groups_) {
    request(groups_, tier_deadline, report_atom_v)
        .then(
            [all](const tier_report_ptr& groups) {
              all->report->groups = groups;
              all->report->queued += groups->queued;
              all->one_less();
            },
            [all](const caf::error&) { all->one_less(); });
  }
  request(dram_, tier_deadline, report_atom_v)
      .then(
          [this, all](const dram_report_ptr& dram) {
            all->report->dram = dram->store;
            all->report->batch_times = dram->batch_times;
            all->report->queued += dram->queued;
            ask_for_curves(dram, all->report, [all] { all->one_less(); });
          },
          [all](const caf::error&) { all->one_less(); });
  request(prefetch_, tier_deadline, report_atom_v)
      .then(
          [all](const prefetch_report_ptr& prefetch) {
            all->report->prefetch = *prefetch;
            all->one_less();
          },
          [all](const caf::error&) { all->one_less(); });
  for (const auto& [number, each] : sessions_) {
    request(each.actor, session_deadline, report_atom_v)
        .then(
            [all](const session_report& session) {
              all->report->sessions.push_back(session);
              all->one_less();
            },
            [all](const caf::error&) { all->one_less(); });
  }
  return all->promise;
}

void node::ask_for_curves(const dram_report_ptr& dram, const report_ptr& full, const std::function<void()>& finish) {
  if (!curves_) return finish();
  const auto put = [full, finish](const curves_report_ptr& estimates) {
    full->watch = estimates->figures;
    for (blocks::instance_status& each : full->dram.instances) {
      if (!each.curve) continue;
      const auto found = std::ranges::find(estimates->curves, each.curve->instance, &blocks::curve_status::instance);
      if (found != estimates->curves.end()) each.curve = *found;
    }
    finish();
  };
  request(curves_, tier_deadline, report_atom_v, dram).then(put, [finish](const caf::error&) { finish(); });
}

caf::result<outcome> node::drain() {
  stopping_ = true;
  auto promise = make_response_promise<outcome>();
  auto open = std::make_shared<std::size_t>(sessions_.size() + 1);
  auto one_less = [open, promise]() mutable {
    if (--*open == 0) promise.deliver(outcome{});
  };
  for (const auto& [number, each] : sessions_) {
    request(each.actor, tier_deadline, drain_atom_v)
        .then([one_less](const outcome&) mutable { one_less(); },
              [one_less](const caf::error&) mutable { one_less(); });
  }
  one_less();
  return promise;
}

void node::went_down(const caf::down_msg& down) {
  if (stopping_) return;
  std::string who = "an actor";
  if (down.source == dram_.address()) who = "the DRAM tier";
  if (down.source == prefetch_.address()) who = "the planner of prefetches";
  if (cluster_ && down.source == cluster_.address()) who = "the cluster's actor";
  if (groups_ && down.source == groups_.address()) who = "the actor of groups of ranks";
  if (curves_ && down.source == curves_.address()) who = "the actor of live curves";
  for (const lower_tier& each : lower_) {
    if (down.source == each.actor.address()) who = each.name;
  }
  for (const auto& [tier, each] : devices_) {
    if (!each.stack) continue;
    if (down.source == each.stack->top.address()) who = "the tier of " + each.device;
    if (down.source == each.stack->planner.address()) who = "the planner of prefetches to " + each.device;
    if (down.source == each.stack->below.actor.address()) who = each.stack->below.name;
  }
  const auto session = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const auto& each) { return each.second.actor.address() == down.source; });
  if (session != sessions_.end()) who = "session " + std::to_string(session->first);
  fatal_(who + " died: " + caf::to_string(down.reason));
}

}  // namespace cenote
