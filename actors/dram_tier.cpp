#include "actors/dram_tier.hpp"

#include <algorithm>
#include <utility>

#include "actors/boot_clock.hpp"
#include "actors/tier_options.hpp"
#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr tenths memory_deadline = std::chrono::seconds(3);  // longer than any slab takes
constexpr tenths retry_memory_after = std::chrono::seconds(1);
constexpr tenths catch_up_limit = std::chrono::minutes(10);  // then what is left waits for the next change
constexpr auto below_deadline = std::chrono::seconds(10);
constexpr std::size_t most_unheard = 4096;
constexpr const char* no_taker =
    "the tier below had no room, is away, or another node has removed something of their instance there";
constexpr std::uint64_t watched_of_a_message =
    4096;  // blocks: a message, which may wake a thread, costs little a block
constexpr auto bind_deadline = std::chrono::milliseconds(500);  // then an instance is opened whose hints are to come

transfer_outcomes_ptr without(const transfer_outcomes_ptr& outcomes, const std::vector<std::uint64_t>& tokens) {
  if (tokens.empty()) return outcomes;
  auto rest = std::make_shared<std::vector<transfer_outcome>>(*outcomes);
  std::erase_if(*rest,
                [&](const transfer_outcome& each) { return std::ranges::find(tokens, each.token) != tokens.end(); });
  return rest;
}

}  // namespace

/// One answer out of those of several tiers below. What one of them could not do is said, and what any of them removed
/// counts. A name that one does not know another one may: only what nobody knows is unknown.
class dram_tier::removal_answers {
 public:
  removal_answers(std::size_t tiers, std::function<void(const outcome&)> finish)
      : open_(tiers), unknown_(tiers), finish_(std::move(finish)) {}

  void take(const outcome& one) {
    if (one.code == error_code::invalid_argument) {
      if (--unknown_ == 0) all_ = one;
    } else if (all_.code == error_code::ok) {
      all_.code = one.code;
      all_.message = one.message;
    }
    all_.value += one.value;
    if (--open_ == 0) finish_(all_);
  }

 private:
  std::size_t open_;     ///< have not answered
  std::size_t unknown_;  ///< … or know what was asked for
  outcome all_;
  std::function<void(const outcome&)> finish_;
};

namespace {

outcome not_gone_above(const std::string& reason) {
  return {error_code::removal_pending, "gone from DRAM, but a device's tier did not answer: " + reason, 0};
}

/// Where the block tier knew what was removed, it does not matter that those below do not.
bool has_failed(const outcome& answer) noexcept {
  return answer.code != error_code::ok && answer.code != error_code::invalid_argument;
}

opened_instance_ptr refused(outcome reason) {
  auto answer = std::make_shared<opened_instance>();
  answer->status = std::move(reason);
  return answer;
}

}  // namespace

dram_tier::dram_tier(caf::actor_config& config, std::shared_ptr<blocks::store> store,
                     std::vector<session_ptr> recovered, request_slabs request, std::vector<lower_tier> below,
                     std::shared_ptr<health> alive, instance_maker_actor maker, tell_news tells, block_tier_role role,
                     tell_watched watches)
    : dram_tier_actor::base(config),
      store_(std::move(store)),
      request_(std::move(request)),
      maker_(std::move(maker)),
      below_(std::move(below)),
      awaited_(role.awaited_listeners),
      is_on_device_(role.is_on_device),
      alive_(std::move(alive)),
      tells_(std::move(tells)),
      watches_(std::move(watches)) {
  for (session_ptr& session : recovered) sessions_.emplace(session->number, std::move(session));
}

void dram_tier::on_exit() {
  waiting_.clear();  // their promises answer with an error
  turns_.clear();
  clears_.clear();
  handing_.reset();
  wanted_.clear();
  binding_.clear();
  maker_ = nullptr;
  store_.reset();
  sessions_.clear();
  unsent_requests_.clear();
  planner_ = nullptr;
  below_.clear();
  listeners_.clear();
  unheard_.clear();
  watches_ = nullptr;
}

dram_tier::behavior_type dram_tier::make_behavior() {
  for (blocks::edge_number edge = 0; edge < below_.size(); ++edge) send(below_[edge].actor, above_atom_v, edge);
  bind_instances();
  flush_outbox();
  return {
      [this](run_atom, const batch_ptr& work) { return serve(work); },
      [this](open_instance_atom, const instance_request_ptr& request) { return open_instance(request); },
      [this](open_atom, const session_ptr& session) { return open_session(session); },
      [this](release_atom, std::uint64_t number) { return release_session(number); },
      [this](reattach_atom, std::uint64_t number, const held_ptr& held) {
        if (!held) return outcome::of(store_->reattach_session(number, std::nullopt));
        std::vector<blocks::held_parts> blocks;
        for (const local::held_block& each : *held) blocks.push_back({each.block, each.grant_version, each.parts});
        return outcome::of(store_->reattach_session(number, blocks));
      },
      [this](handles_atom, std::uint32_t instance, const index_list& indices) { return handles(instance, indices); },
      [this](places_atom, std::uint32_t instance, const index_list& indices) { return places(instance, indices); },
      [this](report_atom) -> dram_report_ptr {
        pass_on_watched(1);  // curves that are asked for with the report have these
        return std::make_shared<const dram_report>(
            dram_report{status(), batch_times_, mailbox().queue().total_task_size()});
      },
      [this](clear_atom, const std::string& id) { return clear(id); },
      [this](clear_node_atom) { return clear_node(); },
      [this](corrupt_atom) { return corrupt(); },
      [this](hand_on_atom, caf::timespan limit) { return hand_on(limit); },
      [this](last_writes_atom, caf::timespan limit) { return write_last(limit); },
      [this](disconnect_atom, std::uint64_t number) {
        store_->disconnect_session(number, boot_now());
        flush_outbox();
      },
      [this](slab_atom, const slab_outcome_ptr& made) { take_slab(*made); },
      [this](reload_atom, const config_ptr& config) { reload(*config); },
      [this](evict_atom) {
        evicting_ = false;
        flush_outbox();
      },
      [this](turn_atom) { take_turn(); },
      [this](tick_atom) { tick(); },
      [this](transfers_done_atom, const transfer_outcomes_ptr& outcomes) {
        const auto going_on = store_->transferred(*outcomes, boot_now());
        if (planner_) send(planner_, transfers_done_atom_v, without(outcomes, going_on));
        retry_waiting();
      },
      [this](copies_lost_atom, blocks::edge_number edge, const lost_blocks_ptr& lost) {
        store_->forget_copies(*lost, edge);
      },
      [this](drained_atom, blocks::edge_number edge, bool sure) {
        if (sure) {
          store_->release_loading(edge);
        } else {
          log_warn(logger("dram"), "a path does not open: memory that reads of the last worker may fill is given up");
          store_->abandon_loading(edge);
        }
        retry_waiting();
      },
      [this](standing_atom, blocks::edge_number edge, bool stands) {
        store_->set_standing(edge, stands);
        if (stands) catch_up(edge);
        retry_waiting();
      },
      [this](cleared_atom, const index_list& instances) { return clear_on_machine(instances); },
      [this](register_planner_atom) {
        planner_ = caf::actor_cast<prefetch_actor>(current_sender());
        for (prefetch_batch_ptr& each : std::exchange(unsent_requests_, {}))
          send(planner_, prefetch_request_atom_v, std::move(each));
      },
      [this](command_atom, const prefetch_commands_ptr& commands) { execute(*commands); },
      [this](hear_removals_atom, const removal_listener& listener, bool is_awaited) {
        return add_listener(listener, is_awaited);
      },
      [this](removed_atom, const removals_ptr& removals) { return take_removed(*removals); },
      [this](follow_atom, const handover_order_ptr& order) {
        store_->follow(*order, boot_now());
        flush_outbox();
      },
      [this](quota_atom, const std::string& group, std::uint64_t bytes) { store_->set_quota(group, bytes); },
      [this](record_atom, caf::timespan time) { store_->record_requests(boot_now() + tenths_of(time)); },
      [this](changes_atom, const change_question_ptr& question) {
        answer_changes(store_->changes(), store_->listing(), *question);
      },
  };
}

caf::result<batch_ptr> dram_tier::serve(const batch_ptr& work) {
  const auto begun = std::chrono::steady_clock::now();
  const blocks::progress state = store_->run(*work, boot_now(), blocks::turn_budget);
  batch_times_.add(static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begun).count()));
  tell_planner(current_sender());
  if (state == blocks::progress::finished) {
    flush_outbox();
    if (work->removals.empty()) {
      end_removals(*work, {});
      return work;
    }
  }
  auto promise = make_response_promise<batch_ptr>();
  if (state == blocks::progress::finished) {
    conclude(work, promise_guard<batch_ptr>(promise));
    return promise;
  }
  waiting_batch rest{work, promise_guard<batch_ptr>(promise), {}, current_sender()};
  if (state == blocks::progress::more) {
    turns_.push_back(std::move(rest));
    ask_for_turn();
  } else {
    rest.deadline = boot_now() + memory_deadline;
    waiting_.push_back(std::move(rest));
  }
  flush_outbox();
  return promise;
}

/// A message to ourselves: what came meanwhile is served first.
void dram_tier::ask_for_turn() {
  const bool hands_on = handing_ && handing_->has_more;
  if (turning_ || (turns_.empty() && clears_.empty() && !hands_on && !store_->has_checks())) return;
  turning_ = true;
  send(this, turn_atom_v);
}

void dram_tier::take_turn() {
  turning_ = false;
  if (!turns_.empty()) {
    waiting_batch next = std::move(turns_.front());
    turns_.pop_front();
    carry_on(std::move(next));
  }
  continue_clear();
  continue_checks();
  flush_outbox();
  ask_for_turn();
}

void dram_tier::carry_on(waiting_batch batch) {
  const boot_time now = boot_now();
  blocks::progress state = store_->run(*batch.work, now, blocks::turn_budget);
  if (state == blocks::progress::waits_for_memory && batch.deadline != boot_time{} && is_due(batch.deadline, now)) {
    store_->give_up(*batch.work, now);  // the entry that waits; the rest has its turn
    state = blocks::progress::more;
  }
  tell_planner(batch.from);
  if (state == blocks::progress::finished) {
    conclude(batch.work, std::move(batch.promise));
  } else if (state == blocks::progress::more) {
    turns_.push_back(std::move(batch));
  } else {
    if (batch.deadline == boot_time{}) batch.deadline = now + memory_deadline;
    waiting_.push_back(std::move(batch));
  }
}

/// The batch is carried out: answered at once, or when what it removed is gone below, too.
void dram_tier::conclude(batch_ptr work, promise_guard<batch_ptr> promise) {
  if (work->removals.empty() || !is_heard()) {
    end_removals(*work, {});
    work->removing.reset();
    return promise.deliver(std::move(work));
  }
  auto kept = std::make_shared<promise_guard<batch_ptr>>(std::move(promise));
  const auto finish = [this, kept, work](const outcome& answer) {
    end_removals(*work, answer);
    kept->deliver(work);
  };
  // Who removes something on all nodes tells each of them: what only passed on would go round for ever. But what is on
  // its way from here might arrive behind it.
  ask_to_forget(std::exchange(work->removals, {}), finish, work->is_guest ? hearers::on_machine : hearers::all);
  work->removing.reset();  // what is asked for from now on comes behind the removal
}

void dram_tier::end_removals(blocks::batch& work, const outcome& answer) {
  const std::uint64_t requests = blocks::answer_removals(work, has_failed(answer) ? answer.code : error_code::ok);
  if (!work.is_guest) note_answers(answer, requests);
}

/// To removals and clears of clients and operators.
void dram_tier::note_answers(const outcome& answer, std::uint64_t requests) {
  if (requests == 0) return;
  const error_code code = has_failed(answer) ? answer.code : error_code::ok;
  const auto line = tally_.note(code, answer.message, requests, std::chrono::steady_clock::now());
  if (line) log_warn(logger(log_name()), *line);
}

/// The index goes to the one that keeps hints in it.
void dram_tier::bind_instances() {
  const auto hinted = store_->hinted_edge();
  for (blocks::instance_binding& each : store_->take_bindings()) {
    for (blocks::edge_number edge = 0; edge < below_.size(); ++edge) {
      auto binding = std::make_shared<blocks::instance_binding>();
      binding->number = each.number;
      binding->spec = each.spec;
      binding->share = each.share;
      if (edge != hinted) {
        send(below_[edge].actor, bind_atom_v, std::move(binding));
        continue;
      }
      binding->index = std::move(each.index);
      binding_.try_emplace(each.number);
      request(below_[edge].actor, bind_deadline, bind_atom_v, std::move(binding))
          .then([this, number = each.number] { end_binding(number); },
                [this, number = each.number](const caf::error&) { end_binding(number); });
    }
  }
}

void dram_tier::end_binding(blocks::instance_number number) {
  auto ended = binding_.extract(number);
  if (ended.empty()) return;
  for (auto& [promise, answer] : ended.mapped()) promise.deliver(std::move(answer));
}

void dram_tier::tell_planner(const caf::strong_actor_ptr& session) {
  auto requests = store_->take_prefetches();
  if (requests.empty()) return;
  auto batch = std::make_shared<prefetch_batch>(prefetch_batch{session, std::move(requests)});
  if (planner_) {
    send(planner_, prefetch_request_atom_v, std::move(batch));
  } else {
    unsent_requests_.push_back(std::move(batch));
  }
}

void dram_tier::execute(const std::vector<prefetch::command>& commands) {
  auto results = std::make_shared<std::vector<prefetch::command_result>>();
  for (const prefetch::command& each : commands) {
    prefetch::command_result result = store_->execute(each, boot_now());
    if (each.what == prefetch::command::kind::release) continue;
    planner_waits_ |= !result.loads.empty() && result.loads.back().state == prefetch::load_state::wait;
    results->push_back(std::move(result));
  }
  if (!results->empty() && planner_) send(planner_, command_results_atom_v, prefetch_results_ptr(std::move(results)));
  flush_outbox();
}

void dram_tier::flush_outbox() {
  continue_handing_on();
  if (!evicting_ && store_->evict_ahead(boot_now())) {
    evicting_ = true;
    send(this, evict_atom_v);
  }
  auto requests = store_->take_requests();
  if (!requests.empty()) request_(std::move(requests));
  if (auto news = store_->take_news(); !news.empty() && tells_) tells_(std::move(news));
  pass_on_watched(store_->is_recorded() ? 1 : watched_of_a_message);  // a recording has the times
  send_below();
  end_wrong_sessions();
  if (store_->has_checks()) ask_for_turn();
}

/// If these are so many blocks.
void dram_tier::pass_on_watched(std::uint64_t least) {
  if (watches_ && store_->watched().blocks() >= least) watches_(store_->watched().take());
}

/// What was decided before a removal goes below before it, or a block would arrive there after it was removed.
void dram_tier::send_below() {
  for (blocks::edge_number edge = 0; edge < below_.size(); ++edge) {
    if (auto blocks = store_->take_demotions(edge); !blocks.empty()) {
      send(below_[edge].actor, write_atom_v, std::make_shared<const std::vector<transfer>>(std::move(blocks)));
    }
    if (auto blocks = store_->take_loads(edge); !blocks.empty()) {
      send(below_[edge].actor, fetch_atom_v, std::make_shared<const std::vector<transfer>>(std::move(blocks)));
    }
  }
}

void dram_tier::retry_waiting() {
  std::move(waiting_.begin(), waiting_.end(), std::back_inserter(turns_));
  waiting_.clear();
  ask_for_turn();
  if (std::exchange(planner_waits_, false) && planner_) send(planner_, space_available_atom_v);
  flush_outbox();
}

caf::result<opened_instance_ptr> dram_tier::open_instance(const instance_request_ptr& request) {
  auto promise = make_response_promise<opened_instance_ptr>();
  if (auto answer = find_instance(*request)) {
    deliver_bound(std::move(answer), promise_guard<opened_instance_ptr>(promise));
    return promise;
  }
  wanted_.push_back({request, promise_guard<opened_instance_ptr>(promise)});
  if (wanted_.size() == 1) make_next_instance();
  return promise;
}

opened_instance_ptr dram_tier::find_instance(const instance_request& request) {
  const auto found = store_->find_instance(request.spec, request.owner);
  if (!found) return refused(outcome::of(std::unexpected(found.error())));
  if (const auto fits = store_->check_fits(request.spec); !fits) return refused(outcome::of(fits));
  if (!*found) return nullptr;
  store_->claim_instance(**found, boot_now());
  return describe(**found);
}

/// One at a time: who waits for the same one then finds it, and limits hold.
void dram_tier::make_next_instance() {
  while (!wanted_.empty()) {
    const instance_request_ptr next = wanted_.front().request;
    auto answer = next->is_given_up ? refused({error_code::closed, "given up", 0}) : find_instance(*next);
    if (!answer) {
      if (outcome room = make_room(next->owner); room.code != error_code::ok) answer = refused(std::move(room));
    }
    if (!answer) break;
    deliver_bound(std::move(answer), std::move(wanted_.front().promise));
    wanted_.pop_front();
  }
  if (wanted_.empty()) return;
  request(maker_, caf::infinite, make_instance_atom_v, wanted_.front().request)
      .then([this](const new_instance_ptr& made) { take_instance(*made); },
            [this](const caf::error& why) {
              new_instance none;
              none.status = {error_code::internal, caf::to_string(why), 0};
              take_instance(none);
            });
}

void dram_tier::take_instance(new_instance& made) {
  wanted_instance first = std::move(wanted_.front());
  wanted_.pop_front();
  deliver_bound(made.memory ? add_instance(*first.request, made) : refused(made.status), std::move(first.promise));
  make_next_instance();
}

/// Whoever opens an instance may ask at once for what is below: not before its hints are in its index.
void dram_tier::deliver_bound(opened_instance_ptr answer, promise_guard<opened_instance_ptr> promise) {
  const auto found = binding_.find(answer->number);
  if (found == binding_.end()) return promise.deliver(std::move(answer));
  found->second.emplace_back(std::move(promise), std::move(answer));
}

/// It stays also if nobody waits for it any more: then it goes as every empty one does.
opened_instance_ptr dram_tier::add_instance(const instance_request& request, new_instance& made) {
  const instance_spec& spec = request.spec;
  const auto added = store_->add_instance(made.number, spec, std::move(made.memory->index),
                                          std::move(made.memory->versions), boot_now(), request.owner);
  if (!added) {
    send(maker_, discard_instance_atom_v, made.number);
    return refused(outcome::of(added));
  }
  store_->set_share(made.number, request.share);
  bind_instances();
  flush_outbox();
  log_info(logger(log_name()), "instance made", {{"instance", spec.id}, {"group", spec.paying_group()}});
  return describe(made.number);
}

opened_instance_ptr dram_tier::describe(blocks::instance_number number) const {
  auto fds = store_->descriptors(number);
  if (!fds) return refused({error_code::system, "this process is out of file descriptors", 0});
  auto found = std::make_shared<opened_instance>();
  found->number = number;
  found->index = std::move(fds->first);
  found->versions = std::move(fds->second);
  return found;
}

outcome dram_tier::open_session(const session_ptr& session) {
  const auto added = store_->add_session(session->number, session->instance, session->view, session->uid);
  if (added) sessions_.emplace(session->number, session);
  return outcome::of(added);
}

outcome dram_tier::release_session(std::uint64_t number) {
  if (planner_) send(planner_, disconnect_atom_v, number);
  const auto its = [&](const waiting_batch& each) { return each.work->session == number; };
  std::erase_if(waiting_, its);
  std::erase_if(turns_, its);
  store_->release_session(number, boot_now());
  sessions_.erase(number);
  retry_waiting();
  return {};
}

void dram_tier::take_slab(blocks::slab_outcome& made) {
  const auto log = logger(log_name());
  if (made.what == blocks::slab_request::kind::drop) {
    if (!made.status) log_warn(log, "the keeper did not drop a slab", {{"reason", made.status.error().describe()}});
    store_->slab_dropped(made.slab);
  } else if (made.what == blocks::slab_request::kind::forget) {
    if (!made.status)
      log_warn(log, "the keeper did not drop an instance", {{"reason", made.status.error().describe()}});
  } else if (made.status) {
    log_debug(log, "slab added",
              {{"instance", made.slab.instance}, {"slab", made.slab.index}, {"bytes", made.slab.block_bytes()}});
    store_->add_slab(made.slab, std::move(made.memory));
  } else {
    log_error(log, "no memory for a slab", {{"reason", made.status.error().describe()}});
    store_->slab_failed(made.slab, boot_now() + retry_memory_after);
  }
  retry_waiting();
}

slab_handles_ptr dram_tier::handles(std::uint32_t instance, const index_list& indices) const {
  auto found = std::make_shared<slab_handles>();
  for (const std::uint32_t index : indices) {
    if (auto slab = store_->slab_descriptor(instance, index)) {
      found->slabs.push_back({index, slab->second});
      found->fds.push_back(std::move(slab->first));
    }
  }
  return found;
}

slab_places_ptr dram_tier::places(std::uint32_t instance, const index_list& indices) const {
  auto found = std::make_shared<std::vector<memory::slab_place>>();
  for (const std::uint32_t index : indices) {
    if (const auto place = store_->slab_place_of(instance, index)) found->push_back(*place);
  }
  return found;
}

blocks::store_status dram_tier::status() const {
  blocks::store_status all = store_->status(boot_now());
  all.counters = tally_.added_to(all.counters);
  return all;
}

caf::result<outcome> dram_tier::clear(const std::string& id) {
  std::vector<blocks::removal> removals;
  auto begun = store_->begin_clear(id, removals);
  if (!begun && is_heard()) return forget_named(id);
  if (!begun) return outcome::of(blocks::no_instance(id));
  if (id.empty())
    removals = {{.instance = 0, .all = true, .keys = {}}};  // also of instances that are not here any more, or not yet
  for (blocks::removal& each : removals) each.id = id;      // below, the name may have had other specs
  auto promise = make_response_promise<outcome>();
  clears_.push_back({std::move(*begun), std::move(removals), 0, promise_guard<outcome>(promise)});
  ask_for_turn();
  return promise;
}

void dram_tier::continue_clear() {
  if (clears_.empty()) return;
  clear_under_way& first = clears_.front();
  if (!first.left.empty()) {
    blocks::clear_work& next = first.left.back();
    if (!store_->clear_some(next, boot_now(), blocks::turn_budget)) return;
    first.cleared += next.cleared;
    first.left.pop_back();
  }
  if (!first.left.empty()) return;
  clear_under_way ended = std::move(first);
  clears_.pop_front();
  send_below();  // whoever hears that it is over knows of all that was to go down before
  forget_below(std::move(ended.removals), outcome{error_code::ok, {}, ended.cleared}, std::move(ended.promise),
               ended.scope);
  retry_waiting();
}

/// A wrong block goes from all tiers of this machine. What others have of its key is compared with its sum when it is
/// read, and may be right.
void dram_tier::continue_checks() {
  auto wrong = store_->check_some(boot_now());
  if (!wrong) return;
  if (wrong_blocks_++ % 1000 == 0)
    log_warn(logger(log_name()), "a block did not have the bytes of its checksum: it is dropped",
             {{"instance", wrong->instance}});
  if (!is_heard()) return;
  std::vector<blocks::removal> removals;
  removals.push_back(std::move(*wrong));
  ask_to_forget(
      std::move(removals), [](const outcome&) {}, hearers::on_machine);
}

/// Those of other nodes and of devices go on: what they store was right when it came.
void dram_tier::end_wrong_sessions() {
  for (const blocks::wrong_session& each : store_->take_wrong_sessions()) {
    const auto found = sessions_.find(each.number);
    if (found == sessions_.end() || static_cast<std::uint32_t>(each.number) >= first_guest_session) continue;
    const session_resources& session = *found->second;
    store_->end_session(each.number, boot_now());
    session.end_for(each.blocks);
    log_warn(logger(log_name()), "a session is ended: blocks that it stored did not have the bytes of their checksums",
             {{"session", each.number},
              {"client", session.client_name},
              {"pid", session.pid},
              {"uid", session.uid},
              {"group", session.instance_group},
              {"blocks", each.blocks}});
  }
}

caf::result<outcome> dram_tier::corrupt() {
  outcome answer;
  std::vector<blocks::removal> removals;
  answer.value = store_->corrupt_all(removals);
  log_warn(logger("dram"), "every block was altered, as an operator asked", {{"blocks", answer.value}});
  if (removals.empty() || !is_heard()) return answer;
  auto promise = make_response_promise<outcome>();
  auto kept = std::make_shared<promise_guard<outcome>>(promise);
  ask_to_forget(std::move(removals),
                [kept, answer](const outcome& forgot) { kept->deliver(has_failed(forgot) ? forgot : answer); });
  return promise;
}

caf::result<outcome> dram_tier::hand_on(caf::timespan limit) {
  if (handing_ && handing_->promise)
    return outcome{error_code::limit_exceeded, "blocks are being handed on already", 0};
  if (const auto begun = store_->begin_handing_on(); !begun) return outcome::of(begun);
  auto promise = make_response_promise<outcome>();
  handing_.emplace(handing_under_way{boot_now() + tenths_of(limit), promise_guard<outcome>(promise)});
  flush_outbox();
  return promise;
}

/// Ends what is handed on to other nodes: the node stops.
caf::result<outcome> dram_tier::write_last(caf::timespan limit) {
  if (const auto begun = store_->begin_last_writes(); !begun) return outcome::of(begun);
  auto promise = make_response_promise<outcome>();
  handing_.emplace(handing_under_way{
      .until = boot_now() + tenths_of(limit), .promise = promise_guard<outcome>(promise), .last = limit});
  flush_outbox();
  return promise;
}

/// A place below is there again, or another one than before: what it could not take is offered to it.
void dram_tier::catch_up(blocks::edge_number edge) {
  if (!store_->begin_catching_up(edge)) return;
  handing_.emplace(handing_under_way{.until = boot_now() + catch_up_limit});
  flush_outbox();
}

void dram_tier::continue_handing_on() {
  if (!handing_) return;
  handing_->has_more = store_->hand_on(boot_now());
  const bool is_late = is_due(handing_->until, boot_now());
  const auto ended = store_->end_handing_on(is_late);
  if (!ended) return ask_for_turn();
  if (!handing_->promise) {
    handing_.reset();
    if (ended->taken > 0 || ended->left > 0)
      log_info(logger("dram"), "blocks were offered again", {{"taken", ended->taken}, {"left", ended->left}});
    return;
  }
  handing_->promise->deliver(answer_of(*handing_, *ended, is_late));
  handing_.reset();
}

outcome dram_tier::answer_of(const handing_under_way& work, const blocks::handed_on& counts, bool is_late) {
  const auto log = logger("dram");
  const std::string taken = std::to_string(counts.taken);
  const std::string left = std::to_string(counts.left);
  if (!work.last) {
    log_info(log, "blocks were handed on to other nodes", {{"taken", counts.taken}, {"left", counts.left}});
  } else if (counts.left > 0) {
    const bool is_wanted = work.last->count() == 0;  // as it was configured
    log_at(is_wanted ? spdlog::level::info : spdlog::level::warn, log,
           "blocks are lost with this node's memory: no tier below has them",
           {{"blocks", counts.left},
            {"bytes", counts.left_bytes},
            {"written", counts.taken},
            {"reason", is_late ? "node.flush_timeout" : no_taker}});
  } else if (counts.taken > 0) {
    log_info(log, "blocks were written down before the end", {{"written", counts.taken}});
  }
  if (counts.left == 0) return {error_code::ok, {}, counts.taken};
  const std::string why = work.last ? no_taker : "their next homes had no room, or cannot be reached";
  return {is_late ? error_code::deadline_exceeded : error_code::no_space,
          taken + " blocks were handed on, " + left + " were not" + (is_late ? " in time" : ": " + why), 0};
}

/// An instance that is not here may have left copies below.
caf::result<outcome> dram_tier::forget_named(const std::string& id) {
  auto promise = make_response_promise<outcome>();
  auto kept = std::make_shared<promise_guard<outcome>>(promise);
  ask_to_forget({{.instance = 0, .all = true, .keys = {}, .id = id}}, [this, kept](const outcome& forgot) {
    if (forgot.code != error_code::invalid_argument) note_answers(forgot, 1);  // there is no such instance
    kept->deliver(forgot);
  });
  return promise;
}

/// Of a clear, whose answer is counted when it is an operator's or a client's.
void dram_tier::forget_below(std::vector<blocks::removal> removals, const outcome& answer,
                             promise_guard<outcome> promise, hearers scope) {
  const bool is_counted = scope == hearers::all;
  if (removals.empty() || !is_heard()) {
    if (is_counted) note_answers({}, 1);
    return promise.deliver(answer);
  }
  auto kept = std::make_shared<promise_guard<outcome>>(std::move(promise));
  ask_to_forget(
      std::move(removals),
      [this, kept, answer, is_counted](const outcome& forgot) {
        if (is_counted) note_answers(forgot, 1);
        kept->deliver(has_failed(forgot) ? forgot : answer);
      },
      scope);
}

/// Another node has cleared these instances outside this machine: all that is on it goes, and nothing outside does.
caf::result<outcome> dram_tier::clear_on_machine(const index_list& instances) {
  send_below();  // what was decided before the clear is over outside, too
  std::vector<blocks::clear_work> begun;
  std::vector<blocks::removal> removals;
  for (const std::uint32_t number : instances) {
    auto work = store_->begin_clear(number);
    if (!work) return outcome::of(blocks::no_instance(std::to_string(number)));
    begun.push_back(std::move(*work));
    removals.push_back({.instance = number, .all = true, .keys = {}});
  }
  auto promise = make_response_promise<outcome>();
  clears_.push_back({std::move(begun), std::move(removals), 0, promise_guard<outcome>(promise), hearers::on_machine});
  ask_for_turn();
  return promise;
}

/// All that is on this machine goes, also of instances that are not here any more, or not yet; nothing outside does.
caf::result<outcome> dram_tier::clear_node() {
  send_below();
  std::vector<blocks::removal> removals;
  auto begun = store_->begin_clear({}, removals);
  removals = {{.instance = 0, .all = true, .keys = {}}};
  auto promise = make_response_promise<outcome>();
  clears_.push_back({begun ? std::move(*begun) : std::vector<blocks::clear_work>(), std::move(removals), 0,
                     promise_guard<outcome>(promise), hearers::on_machine});
  ask_for_turn();
  return promise;
}

/// Of a tier below, which has removed these blocks: they go here, and nobody is told. What was on its way down when it
/// removed them is behind that tier's question, and before the answer.
caf::result<outcome> dram_tier::take_removed(const std::vector<blocks::removal>& removals) {
  send_below();
  std::uint64_t cleared = 0;
  std::vector<blocks::clear_work> left;
  for (const blocks::removal& each : removals) {
    if (!each.all) {
      cleared += store_->forget_keys(each.instance, each.keys, boot_now());
    } else if (auto begun = store_->begin_clear(each.instance)) {
      left.push_back(std::move(*begun));
    }
  }
  if (left.empty()) {
    retry_waiting();
    return outcome{error_code::ok, {}, cleared};
  }
  auto promise = make_response_promise<outcome>();
  clears_.push_back({std::move(left), {}, cleared, promise_guard<outcome>(promise), hearers::on_machine});
  ask_for_turn();
  return promise;
}

void dram_tier::ask_to_forget(std::vector<blocks::removal> removals, std::function<void(const outcome&)> finish,
                              hearers whom) {
  send_below();
  auto on_its_way = removals;
  for (blocks::removal& each : on_its_way) each.on_its_way = true;
  const auto what = std::make_shared<const std::vector<blocks::removal>>(std::move(removals));
  const auto outside =
      whom == hearers::all ? what : std::make_shared<const std::vector<blocks::removal>>(std::move(on_its_way));
  const auto all = std::make_shared<removal_answers>(
      below_.size() + (whom == hearers::below ? 0 : listeners_.size() + awaited_), std::move(finish));
  for (blocks::edge_number edge = 0; edge < below_.size(); ++edge) {
    const lower_tier& each = below_[edge];
    request(each.actor, below_deadline, forget_atom_v, edge == store_->hinted_edge() ? what : outside)
        .then([all](const outcome& forgot) { all->take(forgot); },
              [all, name = each.name](const caf::error& why) {
                log_error(logger("dram"), "a tier below did not forget",
                          {{"tier", name}, {"reason", caf::to_string(why)}});
                all->take({error_code::removal_pending,
                           "gone from DRAM, but " + name + " did not answer: " + caf::to_string(why), 0});
              });
  }
  if (whom != hearers::below) tell_listeners(what, all);
}

void dram_tier::tell_listeners(const removals_ptr& what, const std::shared_ptr<removal_answers>& all) {
  for (const removal_listener& each : listeners_) tell(each, what, all);
  if (awaited_ == 0) return;
  if (unheard_.size() >= most_unheard) forget_all_later();
  unheard_.push_back({what, all, boot_now() + tenths_of(below_deadline)});
}

/// A driver that takes so long shall not cost memory without end: of what was answered already all goes instead.
void dram_tier::forget_all_later() {
  const auto answered = std::erase_if(unheard_, [](const unheard& each) { return !each.all; });
  if (answered == 0) return;
  const blocks::removal everything{.instance = 0, .all = true, .keys = {}};
  unheard_.insert(unheard_.begin(), {std::make_shared<const std::vector<blocks::removal>>(1, everything), nullptr, {}});
}

/// `all`: null: nobody waits for the answer.
void dram_tier::tell(const removal_listener& listener, const removals_ptr& what,
                     const std::shared_ptr<removal_answers>& all) {
  request(listener, below_deadline, removed_atom_v, what)
      .then(
          [all](const outcome& removed) {
            if (all) all->take(removed);
          },
          [all](const caf::error& why) {
            log_error(logger("dram"), "a tier above did not forget", {{"reason", caf::to_string(why)}});
            if (all) all->take(not_gone_above(caf::to_string(why)));
          });
}

/// A tier above has come, or (null) will not. One that was awaited hears at once of what was removed meanwhile; another
/// one had no blocks.
outcome dram_tier::add_listener(const removal_listener& listener, bool is_awaited) {
  if (listener) listeners_.push_back(listener);
  if (!is_awaited) return {};
  if (awaited_ > 0) --awaited_;
  for (const unheard& each : unheard_) {
    if (listener)
      tell(listener, each.what, each.all);
    else if (each.all)
      each.all->take(outcome::of(none_of_them(*each.what)));
  }
  if (awaited_ == 0) unheard_.clear();
  return {};
}

/// Who removed something is told in time that tiers above did not come; they hear of it all the same.
void dram_tier::answer_unheard() {
  for (unheard& each : unheard_) {
    if (!each.all || !is_due(each.until, boot_now())) continue;
    const auto all = std::exchange(each.all, nullptr);
    for (std::uint32_t missing = 0; missing < awaited_; ++missing) all->take(not_gone_above("it is not open yet"));
  }
}

void dram_tier::reload(const config::node_config& config) {
  const auto high = is_on_device_ ? config.gpu.high_water : config.dram.high_water;
  const auto low = is_on_device_ ? config.gpu.low_water : config.dram.low_water;
  store_->set_water_marks(high, low);
  store_->set_limits(limit_options_of(config), boot_now());
  store_->set_groups(group_options_of(config), boot_now());
  if (auto set = store_->set_policy(is_on_device_ ? config.gpu.policy : config.dram.policy, boot_now()); !set) {
    log_error(logger("dram"), "the policy stays as it is", {{"reason", set.error().describe()}});
  }
  store_->set_reserve_timeout(tenths_of(config.session.reserve_timeout));
  store_->set_life(life_options_of(config));
  flush_outbox();
}

/// What expired here expires below by itself, too; this only frees its space sooner. DRAM has uses of its own, and so
/// have other nodes.
void dram_tier::forget_expired() {
  auto expired = store_->take_expired();
  if (expired.empty() || below_.empty() || is_on_device_) return;
  ask_to_forget(
      std::move(expired), [](const outcome&) {}, hearers::below);
}

outcome dram_tier::make_room(std::uint32_t owner) {
  const auto room = store_->make_room(owner, boot_now());
  tell_given_up();
  flush_outbox();  // their memory goes back
  return outcome::of(room);
}

/// Only now is nothing of them on its way.
void dram_tier::tell_given_up() {
  for (const blocks::instance_number number : store_->take_given_up()) {
    log_info(logger(log_name()), "an instance that nobody used was given up", {{"number", number}});
    for (const lower_tier& each : below_) send(each.actor, unbind_atom_v, number);
  }
}

void dram_tier::tick() {
  if (alive_) alive_->beat();
  store_->tick(boot_now());
  bind_instances();  // those for which there was no descriptor
  forget_expired();
  tell_given_up();
  answer_unheard();
  pass_on_watched(1);
  if (waiting_.empty()) {
    flush_outbox();
  } else {
    retry_waiting();
  }
}

}  // namespace cenote
