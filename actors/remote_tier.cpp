#include "actors/remote_tier.hpp"

#include <algorithm>
#include <utility>

#include "actors/boot_clock.hpp"
#include "config/logging.hpp"
#include "core/stored_identity.hpp"

namespace cenote {

namespace {

remote::steady_time steady_now() {
  return std::chrono::steady_clock::now();
}

constexpr std::uint64_t ns_per_us = 1000;
constexpr auto clear_deadline = std::chrono::seconds(30);  // of this node's own tiers
constexpr std::chrono::milliseconds grace{1000};  // a backend answers in time by itself; this is for one that is broken

}  // namespace

std::set<std::string, std::less<>> groups_kept_here(const config::node_config& config) {
  std::set<std::string, std::less<>> all;
  for (const auto& [name, group] : config.groups) {
    if (!group.remote) all.insert(name);
  }
  return all;
}

remote_tier::remote_tier(caf::actor_config& config, setup with)
    : remote_tier_actor::base(config),
      store_(with.backends.size()),
      backends_(std::move(with.backends)),
      timeout_(with.timeout),
      kept_here_(std::move(with.kept_here)),
      tell_presence_(std::move(with.tell_presence)),
      tell_removal_(std::move(with.tell_removal)) {
  for (const auto& each : backends_) {
    for (const instance_spec& spec : each->earlier_instances()) names_.insert_or_assign(identity_of(spec), spec.id);
  }
}

void remote_tier::on_exit() {
  questions_.clear();  // their promises answer with an error
  removals_.clear();
  above_ = nullptr;
  backends_.clear();
}

remote_tier::behavior_type remote_tier::make_behavior() {
  return {
      [this](above_atom, blocks::edge_number edge) {
        above_ = caf::actor_cast<upper_tier_actor>(current_sender());
        edge_ = edge;
        // What an earlier worker asked for was copied by its own threads, and they are gone.
        send(above_, drained_atom_v, edge_, true);
        say_standing();
      },
      [this](bind_atom, const instance_binding_ptr& instance) { bind(*instance); },
      [this](unbind_atom, std::uint32_t instance) { unbind(instance); },
      [this](write_atom, const transfers_ptr& blocks) {
        store_.put(*blocks, {.steady = steady_now(), .boot = boot_now()});
        flush_outbox();
      },
      [this](fetch_atom, const transfers_ptr& blocks) {
        store_.get(*blocks, steady_now());
        flush_outbox();
      },
      [this](locate_atom, const key_query_ptr& asked) { return locate(*asked); },
      [this](forget_atom, const removals_ptr& removals) { return forget(*removals); },
      [this](report_atom) { return report(); },
      [this](tick_atom) {
        answer_overdue();
        say_standing();
      },
      [this](reload_atom, const config_ptr& config) {
        kept_here_ = groups_kept_here(*config);
        for (const auto& [number, spec] : specs_) store_.bind(number, spec, !kept_here_.contains(spec.paying_group()));
      },
      [this](remote_moved_atom, const remote_outcomes_ptr& ended) { take_outcomes(*ended); },
      [this](remote_standing_atom, const remote_standing_ptr& heard) { take_standing(*heard); },
      [this](remote_clear_atom, const remote_clear_ptr& clear) { take_clear(*clear); },
      [this](remote_presence_atom, const remote_presence_ptr& part) { take_presence(*part); },
      [this](remote_removal_atom, const remote_removal_ptr& part) { take_removal(*part); },
  };
}

void remote_tier::bind(const blocks::instance_binding& instance) {
  store_.bind(instance.number, instance.spec, !kept_here_.contains(instance.spec.paying_group()));
  specs_.insert_or_assign(instance.number, instance.spec);
  for (const auto& each : backends_) each->bind(instance.spec);
  const instance_identity identity = *store_.identity_of(instance.number);
  look_for_clears(instance.spec, identity);
  names_.insert_or_assign(identity, instance.spec.id);
  if (owed_.erase(instance.spec.id) > 0) ask_to_clear(0, identity);
  for (auto each = names_.begin(); names_.size() > most_names && each != names_.end();) {
    const bool bound =
        std::ranges::any_of(specs_, [&](const auto& of) { return store_.identity_of(of.first) == each->first; });
    each = bound ? std::next(each) : names_.erase(each);
  }
}

void remote_tier::unbind(std::uint32_t instance) {
  const auto identity = store_.identity_of(instance);
  store_.unbind(instance);
  specs_.erase(instance);
  const bool is_used =
      std::ranges::any_of(specs_, [&](const auto& of) { return store_.identity_of(of.first) == identity; });
  if (!identity || is_used) return;
  for (const auto& each : backends_) each->unbind(*identity);
}

/// Backends are asked side by side; what any of them has counts.
caf::result<key_answer_ptr> remote_tier::locate(const key_query& asked) {
  const auto identity = store_.identity_of(asked.instance);
  const auto from = identity && store_.may_leave(asked.instance) ? store_.askable(steady_now())
                                                                 : std::vector<remote::backend_number>();
  if (from.empty() || asked.keys.empty()) {
    auto nothing = std::make_shared<key_answer>();
    nothing->held.resize(asked.keys.size());
    if (store_.may_leave(asked.instance)) nothing->unreachable = static_cast<std::uint32_t>(store_.backends());
    return key_answer_ptr(std::move(nothing));
  }
  auto promise = make_response_promise<key_answer_ptr>();
  const std::uint64_t number = next_number_++;
  questions_.emplace(number, open_question{.promise = promise_guard<key_answer_ptr>(promise),
                                           .held = std::vector<bool>(asked.keys.size()),
                                           .open = from.size(),
                                           .until = steady_now() + asked.patience + grace});
  for (const remote::backend_number each : from) {
    std::vector<remote::block_name> names;
    names.reserve(asked.keys.size());
    for (const full_key& full : asked.keys)
      names.push_back({.identity = *identity, .group = asked.group, .full = full});
    backends_[each]->locate(
        std::move(names), asked.patience,
        [tell = tell_presence_, self = caf::actor_cast<remote_tier_actor>(this), number, each](remote::presence held) {
          tell(self, std::make_shared<const remote_presence>(number, each, std::move(held)));
        });
  }
  return promise;
}

void remote_tier::take_presence(const remote_presence& part) {
  store_.located(part.from, part.held.is_complete, steady_now());
  const auto found = questions_.find(part.question);
  if (found == questions_.end()) return;
  open_question& question = found->second;
  for (std::size_t i = 0; i < std::min(question.held.size(), part.held.held.size()); ++i) {
    if (part.held.held[i]) question.held[i] = true;
  }
  if (!part.held.is_complete) ++question.unreachable;
  if (--question.open != 0) return;
  answer(question);
  questions_.erase(found);
}

void remote_tier::answer(open_question& question) {
  question.promise.deliver(std::make_shared<const key_answer>(
      key_answer{std::move(question.held), question.unreachable + static_cast<std::uint32_t>(question.open)}));
}

/// Nobody waits for a backend that has broken its promise to answer in time.
void remote_tier::answer_overdue() {
  const auto now = steady_now();
  for (auto each = questions_.begin(); each != questions_.end();) {
    if (now >= each->second.until) answer(each->second);
    each = now >= each->second.until ? questions_.erase(each) : std::next(each);
  }
  for (auto each = removals_.begin(); each != removals_.end();) {
    const bool is_overdue = now >= each->second.until;
    if (is_overdue && each->second.unconfirmed.empty()) each->second.unconfirmed = "a backend that does not answer";
    if (is_overdue) answer(each->second);
    each = is_overdue ? removals_.erase(each) : std::next(each);
  }
}

bool remote_tier::knows(const std::string& id) const {
  return std::ranges::any_of(names_, [&](const auto& each) { return each.second == id; });
}

/// Identities of the instances that the removal of all of an instance means.
std::set<instance_identity> remote_tier::cleared_by(const blocks::removal& what) {
  std::set<instance_identity> all;
  if (const auto identity = store_.identity_of(what.instance)) all.insert(*identity);
  for (const auto& [identity, name] : names_) {
    if (!what.id.empty() && name == what.id) all.insert(identity);
  }
  return all;
}

/// Answers when each backend has, or at the deadline. A removal without a confirmation is an error with the backend's
/// name: copies may remain there.
caf::result<outcome> remote_tier::forget(const std::vector<blocks::removal>& removals) {
  for (const blocks::removal& each : removals) {
    if (each.instance != 0 || each.id.empty() || knows(each.id)) continue;
    if (owed_.size() < most_names) owed_.insert(each.id);  // its specs say which blocks are meant: when they are known
    return outcome::of(blocks::no_instance(each.id));
  }
  auto promise = make_response_promise<outcome>();
  const std::uint64_t number = next_number_++;
  forgetting& made = removals_
                         .emplace(number, forgetting{.promise = promise_guard<outcome>(promise),
                                                     .open = 1,
                                                     .until = steady_now() + timeout_ + grace})
                         .first->second;
  for (const blocks::removal& each : removals) {
    if (each.all && each.instance == 0 && each.id.empty()) {
      store_.forget_all();
    } else {
      store_.forget(each.instance, each.all ? std::vector<block_key>() : each.keys);
    }
    if (each.on_its_way) continue;
    if (each.all && each.instance == 0 && each.id.empty()) {
      ask_to_clear_all(number);
    } else if (each.all) {
      for (const instance_identity& identity : cleared_by(each)) ask_to_clear(number, identity);
    } else if (const auto identity = store_.identity_of(each.instance); identity && !each.keys.empty()) {
      for (remote::backend_number from = 0; from < backends_.size(); ++from) {
        ask_to_drop(number, from, *identity, each.keys);
      }
    }
  }
  if (--made.open == 0) {  // nothing to ask for
    made.promise.deliver(outcome{});
    removals_.erase(number);
  }
  return promise;
}

void remote_tier::ask_to_clear(std::uint64_t removal, instance_identity identity) {
  for (remote::backend_number from = 0; from < backends_.size(); ++from) {
    backends_[from]->clear(identity, tell_cleared(removal, from));
  }
}

void remote_tier::ask_to_clear_all(std::uint64_t removal) {
  std::vector<instance_identity> identities;
  identities.reserve(names_.size());
  for (const auto& [identity, name] : names_) identities.push_back(identity);
  for (remote::backend_number from = 0; from < backends_.size(); ++from) {
    backends_[from]->clear_all(identities, tell_cleared(removal, from));
  }
}

void remote_tier::ask_to_drop(std::uint64_t removal, remote::backend_number from, instance_identity identity,
                              std::vector<block_key> keys) {
  backends_[from]->drop(identity, std::move(keys), tell_removed(removal, from));
}

/// Counts one more answer that the removal waits for; 0: none waits.
std::function<void(result<std::uint64_t>)> remote_tier::tell_removed(std::uint64_t removal,
                                                                     remote::backend_number from) {
  if (const auto open = removals_.find(removal); open != removals_.end()) ++open->second.open;
  return [tell = tell_removal_, self = caf::actor_cast<remote_tier_actor>(this), removal,
          from](result<std::uint64_t> removed) {
    tell(self, std::make_shared<const remote_removal>(removal, from, std::move(removed)));
  };
}

std::function<void(const result<void>&)> remote_tier::tell_cleared(std::uint64_t removal, remote::backend_number from) {
  return [tell = tell_removed(removal, from)](const result<void>& how) {
    tell(how ? result<std::uint64_t>(0) : std::unexpected(how.error()));
  };
}

void remote_tier::take_removal(const remote_removal& part) {
  if (part.removed) {
    store_.counters.removed += *part.removed;
  } else if (store_.counters.unremoved++ % 1000 == 0) {
    log_warn(logger("remote"), "a removal is not confirmed: copies may remain there",
             {{"backend", std::string(backends_[part.from]->name())}, {"reason", part.removed.error().describe()}});
  }
  const auto found = removals_.find(part.removal);
  if (found == removals_.end()) return;
  forgetting& each = found->second;
  each.removed += part.removed.value_or(0);
  if (!part.removed) {
    each.unconfirmed = std::string(backends_[part.from]->name()) + ": " + part.removed.error().message();
  }
  if (--each.open != 0) return;
  answer(each);
  removals_.erase(found);
}

void remote_tier::answer(forgetting& removal) {
  if (removal.unconfirmed.empty()) return removal.promise.deliver(outcome{error_code::ok, {}, removal.removed});
  removal.promise.deliver(
      outcome{error_code::removal_pending,
              "gone from this node, but other nodes may still find blocks at " + removal.unconfirmed, removal.removed});
}

void remote_tier::take_outcomes(const remote_outcomes& ended) {
  histogram& times = ended.what == remote::call::kind::get ? gets_ : puts_;
  for (const remote::item_outcome& each : ended.outcomes) times.add(each.micros * ns_per_us);
  store_.answered(ended.from, ended.what, ended.outcomes, steady_now());
  flush_outbox();
}

void remote_tier::take_standing(const remote_standing& heard) {
  const bool stood = store_.status_of(heard.of, steady_now()).stands;
  store_.set_standing(heard.of, heard.how);
  const std::string name(backends_[heard.of]->name());
  if (heard.how && !stood) {
    for (const auto& [number, spec] : specs_) {  // it may not have been there to hear
      backends_[heard.of]->bind(spec);
      look_for_clears(spec, *store_.identity_of(number));
    }
    log_info(logger("remote"), "a backend answers", {{"backend", name}});
  } else if (!heard.how) {
    log_warn(logger("remote"), "a backend does not answer; the node goes on without it",
             {{"backend", name}, {"reason", heard.how.error().describe()}});
  }
  // Blocks that it could not take are offered to it again, also where the tier as a whole has stood all the time.
  if (!say_standing() && heard.how && above_ && said_standing_) send(above_, standing_atom_v, edge_, true);
}

/// An instance that may not leave the machine is not named outside it.
void remote_tier::look_for_clears(const instance_spec& spec, const instance_identity& identity) {
  if (kept_here_.contains(spec.paying_group())) return;
  for (const auto& each : backends_) each->look_for_clear(identity);
}

/// Blocks that another node cleared at a backend go from all tiers of this machine, before the backend has more of it.
void remote_tier::take_clear(const remote_clear& clear) {
  index_list instances;
  for (const auto& [number, spec] : specs_) {
    if (store_.identity_of(number) == clear.identity) instances.push_back(number);
  }
  if (!above_ || instances.empty()) {  // it is asked for again when the instance is used
    if (clear.backend < backends_.size()) {
      backends_[clear.backend]->clear_above_ended(clear.identity, fail(error_code::closed, "it is not in use here"));
    }
    return;
  }
  request(above_, clear_deadline, cleared_atom_v, std::move(instances))
      .then(
          [this, clear](const outcome& cleared) {
            const auto cleared_here = cleared.get();
            end_clear(clear, cleared_here ? result<void>() : std::unexpected(cleared_here.error()));
          },
          [this, clear](const caf::error& failure) {
            end_clear(clear, fail(error_code::deadline_exceeded, caf::to_string(failure)));
          });
}

void remote_tier::end_clear(const remote_clear& clear, const result<void>& cleared) {
  if (clear.backend >= backends_.size()) return;
  backends_[clear.backend]->clear_above_ended(clear.identity, cleared);
  const auto name = names_.find(clear.identity);
  const std::string instance = name == names_.end() ? "" : name->second;
  const std::string backend(backends_[clear.backend]->name());
  if (cleared) {
    log_info(logger("remote"), "another node cleared an instance: it is cleared here, too",
             {{"instance", instance}, {"backend", backend}});
  } else {
    log_warn(logger("remote"), "another node cleared an instance, and it is not cleared here yet",
             {{"instance", instance}, {"backend", backend}, {"reason", cleared.error().describe()}});
  }
}

tier_report_ptr remote_tier::report() {
  auto made = std::make_shared<remote_report>();
  made->now = store_.gauges();
  made->totals = store_.counters;
  for (remote::backend_number number = 0; number < backends_.size(); ++number) {
    made->backends.push_back({std::string(backends_[number]->name()), store_.status_of(number, steady_now()),
                              backends_[number]->removals()});
  }
  made->gets = gets_;
  made->puts = puts_;
  made->queued = mailbox().queue().total_task_size();
  made->describe();
  return made;
}

void remote_tier::flush_outbox() {
  for (remote::call& each : store_.take_calls()) {
    if (each.what == remote::call::kind::get) {
      backends_[each.to]->get(std::move(each.items));
    } else {
      backends_[each.to]->put(std::move(each.items));
    }
  }
  for (const remote::late_removal& each : store_.take_late()) ask_to_drop(0, each.from, each.identity, {each.key});
  if (auto outcomes = store_.take_outcomes(); !outcomes.empty() && above_) {
    send(above_, transfers_done_atom_v, std::make_shared<const std::vector<transfer_outcome>>(std::move(outcomes)));
  }
  say_standing();
}

bool remote_tier::say_standing() {
  const bool stands = store_.is_standing(steady_now());
  if (!above_ || stands == said_standing_) return false;
  said_standing_ = stands;
  send(above_, standing_atom_v, edge_, stands);
  return true;
}

}  // namespace cenote
