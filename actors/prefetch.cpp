#include "actors/prefetch.hpp"

#include <algorithm>
#include <numeric>

#include "actors/tier_options.hpp"
#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto question_limit = std::chrono::seconds(10);  // what comes after is dropped: nobody waits so long

}  // namespace

prefetch_planner::prefetch_planner(caf::actor_config& config, const prefetch::options& options, dram_tier_actor dram,
                                   std::vector<lower_tier> below, clock now, follower follow)
    : prefetch_actor::base(config),
      first_(options),
      planner_(options),
      dram_(std::move(dram)),
      below_(std::move(below)),
      now_(std::move(now)),
      follow_(std::move(follow)),
      slow_load_(options.slow_load) {}

void prefetch_planner::on_exit() {
  dram_ = nullptr;
  below_.clear();
  asking_.clear();
}

prefetch_planner::behavior_type prefetch_planner::make_behavior() {
  send(dram_, register_planner_atom_v);
  return {
      [this](prefetch_request_atom, const prefetch_batch_ptr& batch) { submit(*batch); },
      [this](command_results_atom, const prefetch_results_ptr& results) {
        for (const prefetch::command_result& each : *results) planner_.on_result(each, now_());
        flush_outbox();
      },
      [this](transfers_done_atom, const transfer_outcomes_ptr& outcomes) {
        planner_.on_loads_finished(*outcomes, now_());
        flush_outbox();
      },
      [this](space_available_atom) {
        planner_.retry();
        flush_outbox();
      },
      [this](disconnect_atom, std::uint64_t session) {
        planner_.on_session_closed(session);
        asking_.erase(session);
        flush_outbox();
      },
      [this](news_atom, const handover_news_ptr& news) {
        planner_.on_news(*news, now_());
        flush_outbox();
      },
      [this](wake_atom, std::uint64_t number) {
        if (alarm_.take(this, number, now_())) flush_outbox();
      },
      [this](reload_atom, const config_ptr& config) {
        prefetch::options next = prefetch_options_of(*config, {});
        next.windows = first_.windows;  // what a restart alone changes stays as it is, as a device has it
        next.total_bytes = first_.total_bytes;
        next.lookup_timeout = first_.lookup_timeout;
        planner_.reload(next);
        slow_load_ = next.slow_load;
        flush_outbox();
      },
      [this](report_atom) -> prefetch_report_ptr {
        return std::make_shared<const prefetch_report>(prefetch_report{planner_.status(now_()), load_times_.times()});
      },
  };
}

void prefetch_planner::submit(prefetch_batch& batch) {
  for (prefetch::request& each : batch.requests) {
    using enum prefetch::request::kind;
    if (each.what != stop && each.what != end) {
      asking_.insert_or_assign(each.session, caf::actor_cast<session_actor>(batch.session));
    }
    planner_.on_request(std::move(each), now_());
  }
  flush_outbox();
}

void prefetch_planner::flush_outbox() {
  const prefetch::time_point now = now_();
  planner_.plan(now);
  if (auto commands = planner_.take_commands(); !commands.empty() && dram_) {
    send(dram_, command_atom_v, std::make_shared<const std::vector<prefetch::command>>(std::move(commands)));
  }
  for (prefetch::question& each : planner_.take_questions()) ask(std::move(each));
  for (handover::order& each : planner_.take_orders()) pass_on(std::move(each));
  answer(planner_.take_answers());
  for (const std::uint32_t instance : planner_.take_assumed()) {
    log_warn(
        logger("prefetch"),
        "no engine of an instance says how fast it computes, and prefetch.prefill_tokens_per_s is not set: loads are "
        "compared with the rate that prefetch.assumed_tokens_per_s has",
        {{"instance", instance}, {"tokens_per_s", planner_.assumed_rate()}});
  }
  if (const auto when = planner_.wake_at(now)) sleep_until(*when);
}

void prefetch_planner::pass_on(handover::order order) {
  if (follow_) return follow_(std::move(order));
  if (order.ends) return;
  send(this, news_atom_v,
       std::make_shared<const handover::news>(
           handover::news{.number = order.number, .is_over = true, .code = error_code::unsupported}));
}

/// The planner waits for no answer longer than the question's patience, so a tier that never gives one is not missed.
void prefetch_planner::ask(prefetch::question question) {
  const std::uint64_t number = question.number;
  const edge_number edge = question.edge;
  const auto told = [this, number, edge](const std::vector<bool>& held) {
    planner_.on_told(number, edge, held);
    flush_outbox();
  };
  if (edge >= below_.size()) return told({});
  request(below_[edge].actor, question_limit, locate_atom_v,
          std::make_shared<const key_query>(std::move(question.keys)))
      .then([told](const key_answer_ptr& answer) { told(answer->held); }, [told](const caf::error&) { told({}); });
}

void prefetch_planner::answer(const std::vector<prefetch::answer>& answers) {
  std::unordered_map<std::uint64_t, std::vector<memory::completion>> of_sessions;
  for (const prefetch::answer& each : answers) {
    of_sessions[each.session].push_back(each.completion);
    note_time(each);
  }
  for (auto& [session, completions] : of_sessions) {
    const auto asked = asking_.find(session);
    if (asked == asking_.end() || !asked->second) continue;
    send(asked->second, answer_atom_v, std::make_shared<const std::vector<memory::completion>>(std::move(completions)));
  }
}

void prefetch_planner::note_time(const prefetch::answer& answer) {
  const auto outcome = memory::prefetch_outcome::unpack(answer.completion);
  const auto slow = load_times_.note(outcome, slow_load_, now_());
  if (!slow) return;
  const auto blocks = std::accumulate(outcome.loaded.begin(), outcome.loaded.end(), std::uint64_t{0});
  log_warn(logger("prefetch"), "slow loads; an example",
           {{"count", *slow},
            {"session", answer.session},
            {"request", answer.completion.request},
            {"ms", outcome.duration.count() / 1000},
            {"loaded", blocks},
            {"prefix", answer.completion.value}});
}

/// The alarm is moved only to a sooner time.
void prefetch_planner::sleep_until(prefetch::time_point when) {
  alarm_.hasten(this, when, now_());
}

}  // namespace cenote
