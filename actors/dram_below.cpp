#include "actors/dram_below.hpp"

#include <utility>

#include "actors/promise_guard.hpp"
#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto above_deadline = std::chrono::seconds(9);  // the DRAM tier waits for ten

outcome outcome_of(const result<std::uint64_t>& how) {
  return how ? outcome{error_code::ok, {}, *how} : outcome{how.error().code(), how.error().message(), 0};
}

/// Answers a removal by DRAM when the tier above has carried it out, and nothing undoes it.
class removal_ends {
 public:
  explicit removal_ends(promise_guard<outcome> promise) : promise_(std::move(promise)) {}

  void add() noexcept { ++open_; }
  void take(const outcome& part) {
    if (part.code != error_code::ok && answer_.code == error_code::ok) answer_ = part;
    if (part.code == error_code::ok && answer_.code == error_code::ok) answer_.value += part.value;
    if (--open_ == 0) promise_.deliver(std::move(answer_));
  }

 private:
  promise_guard<outcome> promise_;
  outcome answer_;
  std::size_t open_ = 1;
};

}  // namespace

dram_below::dram_below(caf::actor_config& config, dram_below_options options)
    : dram_below_actor::base(config), options_(std::move(options)) {}

void dram_below::on_exit() {
  if (keeper_) anon_send_exit(keeper_, caf::exit_reason::user_shutdown);
  keeper_ = nullptr;
  above_ = nullptr;
  guest_.reset();
  own_copies_.reset();
  room_.reset();
  options_ = {};
}

dram_below::behavior_type dram_below::make_behavior() {
  keeper_ = home_system().spawn<guest_keeper>(
      options_.dram, options_.epoch, teller(),
      guest_keeper_options{.numbers = guest_numbers_of(options_.number), .is_of_others = false, .log = "gpu"});
  room_ =
      std::make_unique<guest_room>([this](guest_order_ptr order) { send(keeper_, guest_atom_v, std::move(order)); });
  gpu::guest_options guest{.device = options_.device, .asks_tiers = options_.asks_tiers};
  if (options_.window != 0) guest.window = options_.window;
  if (options_.copies == nullptr) own_copies_ = std::make_unique<gpu::copies>(options_.on);
  guest_ = std::make_unique<gpu::dram_guest>(*room_, *options_.on, hooks(), std::move(guest));
  return {
      [this](above_atom, blocks::edge_number edge) { take_place(edge); },
      [this](bind_atom, const instance_binding_ptr& instance) {
        guest_->bind(instance->number, instance->spec, instance->share);
      },
      [this](unbind_atom, std::uint32_t instance) { guest_->unbind(instance); },
      [this](write_atom, const transfers_ptr& blocks) { guest_->write(*blocks); },
      [this](fetch_atom, const transfers_ptr& blocks) { guest_->fetch(*blocks); },
      [this](locate_atom, const key_query_ptr& asked) { return locate(*asked); },
      [this](forget_atom, const removals_ptr& removals) { return forget(*removals); },
      [this](report_atom) { return report_of(guest_->counters()); },
      [this](tick_atom) { tick(); },
      [](reload_atom, const config_ptr&) {},
      [this](removed_atom, const removals_ptr& removals) { return pass_on(removals); },
      [](gpu_task_atom, const gpu_task_ptr& task) { (*task)(); },
  };
}

/// From any thread. A device's thread may be in it when the actor has ended already.
std::function<void(std::function<void()>)> dram_below::teller() {
  return [to = caf::actor_cast<caf::weak_actor_ptr>(this), path = options_.path](std::function<void()> what) {
    const auto alive = caf::actor_cast<caf::strong_actor_ptr>(to);
    if (!alive) return;
    const auto target = caf::actor_cast<dram_below_actor>(alive);
    auto task = std::make_shared<std::function<void()>>(std::move(what));
    if (path != nullptr)
      path->deliver(target, gpu_task_atom_v, gpu_task_ptr(std::move(task)));
    else
      caf::anon_send(target, gpu_task_atom_v, gpu_task_ptr(std::move(task)));
  };
}

gpu::guest_hooks dram_below::hooks() {
  return {.ended =
              [this](std::vector<transfer_outcome> outcomes) {
                if (!above_) return;
                send(above_, transfers_done_atom_v,
                     std::make_shared<const std::vector<transfer_outcome>>(std::move(outcomes)));
              },
          .copy =
              [this, tell = teller()](gpu::copy_way way, std::vector<copy_run> runs,
                                      std::vector<std::span<std::byte>> slabs, gpu::copies::then ended) {
                auto told = [this, tell, way, ended = std::move(ended)](const gpu::copy_end& end) {
                  tell([this, way, ended, end] {
                    note(way, end);
                    ended(end);
                  });
                };
                if (options_.copies != nullptr)
                  options_.copies->begin(way, std::move(runs), std::move(slabs), told);
                else
                  own_copies_->begin(way, runs, slabs, std::move(told));
              },
          .lost = [this](const std::string& why) { say_lost(why); },
          .now = [] { return std::chrono::steady_clock::now(); }};
}

void dram_below::take_place(blocks::edge_number edge) {
  above_ = caf::actor_cast<dram_tier_actor>(current_sender());
  edge_ = edge;
  if (options_.drain_after.count() > 0) {
    drained_at_ = std::chrono::steady_clock::now() + options_.drain_after;
  } else {
    send(above_, drained_atom_v, edge_, true);
  }
  if (guest_->is_lost()) send(above_, standing_atom_v, edge_, false);
}

/// The first of a series: a device that refuses all would fill the log.
void dram_below::note(gpu::copy_way way, const gpu::copy_end& end) {
  const bool is_done = end.how == gpu::copy_end::kind::done;
  if (std::exchange(copies_go_well_.at(static_cast<std::size_t>(way)), is_done) && !is_done)
    log_warn(logger("gpu"), "blocks were not copied between a device and DRAM",
             {{"device", options_.device}, {"reason", end.why}});
}

void dram_below::say_lost(const std::string& why) {
  if (above_) send(above_, standing_atom_v, edge_, false);
  if (options_.on_lost) options_.on_lost(why);
}

caf::result<key_answer_ptr> dram_below::locate(const key_query& asked) {
  auto promise = make_response_promise<key_answer_ptr>();
  auto kept = std::make_shared<promise_guard<key_answer_ptr>>(promise);
  guest_->locate(asked,
                 [kept](key_answer held) { kept->deliver(std::make_shared<const key_answer>(std::move(held))); });
  return promise;
}

caf::result<outcome> dram_below::forget(const std::vector<blocks::removal>& removals) {
  auto promise = make_response_promise<outcome>();
  auto kept = std::make_shared<promise_guard<outcome>>(promise);
  guest_->forget(removals, [kept](const result<std::uint64_t>& how) { kept->deliver(outcome_of(how)); });
  return promise;
}

/// What the tier above had on its way down comes before its answer: so writes are stopped behind that once more.
caf::result<outcome> dram_below::pass_on(const removals_ptr& removals) {
  auto promise = make_response_promise<outcome>();
  const auto ends = std::make_shared<removal_ends>(promise_guard<outcome>(promise));
  const auto take = [ends](const result<std::uint64_t>& how) { ends->take(outcome_of(how)); };
  ends->add();  // until the tier above has been asked
  auto here = guest_->stop_writing(*removals, take);
  if (here.empty() || !above_) {
    ends->take(outcome::of(none_of_them(*removals)));
    return promise;
  }
  request(above_, above_deadline, removed_atom_v, std::make_shared<const std::vector<blocks::removal>>(std::move(here)))
      .then(
          [this, removals, ends, take](const outcome& removed) {
            ends->add();
            (void)guest_->stop_writing(*removals, take);
            ends->take(removed);
          },
          [ends](const caf::error& why) {
            ends->take({error_code::removal_pending, "a device's tier has not forgotten: " + caf::to_string(why), 0});
          });
  return promise;
}

void dram_below::tick() {
  const auto now = std::chrono::steady_clock::now();
  if (drained_at_ && now >= *drained_at_) {
    drained_at_.reset();
    send(above_, drained_atom_v, edge_, true);
  }
  guest_->advance(now);
}

tier_report_ptr report_of(const gpu::guest_counters& counters) {
  auto made = std::make_shared<tier_report>("gpu");
  append_figures(made->counters, counters);
  return made;
}

}  // namespace cenote
