#include "tiers/remote/peers_backend.hpp"

#include <algorithm>
#include <memory>

#include "core/byte_io.hpp"
#include "core/calendar_clock.hpp"
#include "core/checksum.hpp"
#include "core/stored_identity.hpp"

namespace cenote::remote {

namespace {

using cluster::count;
using cluster::is_offer;
using cluster::piece_kind;
using peer::block_answer;
using peer::frame_type;

constexpr std::size_t most_specs = 4096;
constexpr std::chrono::minutes refusal_lasts{1};  // then a node is asked again to bind what it refused

/// This node's proof for the one at the other end of the link.
std::optional<peer::proof> right_of(const cluster::pool& pool, peer::link_id link, std::span<const std::byte> encoded) {
  byte_reader reader(encoded);
  const auto spec = decode_instance_spec(reader);
  const auto* const home = pool.member_on(link);
  if (!spec || home == nullptr) return std::nullopt;
  return pool.rights.load()->proof_of(cluster::bind_side::asker, *spec, home->key);
}

/// A home without the right to the group would give its blocks to all clients that attach there.
bool has_right(const cluster::pool& pool, peer::link_id link, std::span<const std::byte> encoded,
               const peer::bind_answer& answer) {
  byte_reader reader(encoded);
  const auto spec = decode_instance_spec(reader);
  const auto* const home = pool.member_on(link);
  if (!spec || home == nullptr) return true;  // nothing is asked of it
  return pool.rights.load()->refusal(cluster::bind_side::home, *spec, home->key, answer.right).empty();
}

}  // namespace

// ---------------------------------------------------------------------------------------------- calls

/// On the network's thread; `otherwise` on this one, where there is no network.
void peers_backend::enter(std::function<void()> what, const std::function<void()>& otherwise) {
  const bool is_posted = pool_.post([this, what = std::move(what)] {
    what();
    flush();
  });
  if (!is_posted) otherwise();
}

/// Also where there is no network yet: a removal is kept until there is one.
void peers_backend::enter_early(std::function<void()> action) {
  pool_.post_early([this, action = std::move(action)] {
    action();
    flush();
  });
}

void peers_backend::bind(const instance_spec& spec) {
  byte_writer writer;
  encode(writer, spec);
  enter_early([this, identity = identity_of(spec), text = std::move(writer).take()] {
    std::erase(unused_, identity);
    if (book_.note_instance(identity, text)) removals_.hasten_save(pool_.now());  // before a block leaves
    if (specs_.size() >= most_specs && !specs_.contains(identity)) {
      if (unused_.empty()) return;
      specs_.erase(unused_.front());
      unused_.pop_front();
    }
    if (!specs_.try_emplace(identity, text).second) return;
    for (auto& [link, each] : nodes_) {  // what was wanted before anybody knew the spec
      const auto found = each.bindings.find(identity);
      if (found != each.bindings.end() && found->second.is_refused) each.bindings.erase(found);
    }
  });
}

void peers_backend::unbind(instance_identity identity) {
  enter_early([this, identity] {
    if (specs_.contains(identity)) unused_.push_back(identity);
  });
}

void peers_backend::put(std::vector<item> batch) {
  move(std::move(batch), false);
}

void peers_backend::get(std::vector<item> batch) {
  move(std::move(batch), true);
}

void peers_backend::move(std::vector<item> batch, bool up) {
  const auto all = std::make_shared<std::vector<item>>(std::move(batch));
  enter(
      [this, all, up] {
        for (item& each : *all) up ? begin_get(std::move(each), pool_.now()) : begin_put(std::move(each), pool_.now());
        for (auto& [link, each] : nodes_) pump(each);
      },
      [this, all, up] { refuse_all(*all, up); });
}

void peers_backend::refuse_all(const std::vector<item>& batch, bool up) {
  std::vector<item_outcome> outcomes;
  outcomes.reserve(batch.size());
  for (const item& each : batch) outcomes.push_back({.token = each.token, .what = item_result::refused, .micros = 0});
  (up ? told_.got : told_.put)(std::move(outcomes));
}

void peers_backend::locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
                           std::function<void(presence)> answer) {
  const auto all = std::make_shared<std::vector<block_name>>(std::move(keys));
  const std::size_t size = all->size();
  enter([this, all, patience, answer] { ask(std::move(*all), pool_.now() + patience, answer); },
        [answer, size] { answer({.held = std::vector<bool>(size), .is_complete = false}); });
}

void peers_backend::drop(instance_identity identity, std::vector<block_key> keys,
                         std::function<void(result<std::uint64_t>)> answer) {
  enter_early([this, identity, keys = std::move(keys), answer] { tell_all(identity, 0, keys, answer); });
}

void peers_backend::clear(instance_identity identity, std::function<void(result<void>)> answer) {
  clear_all({identity}, std::move(answer));
}

void peers_backend::clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) {
  struct state {
    std::size_t open;
    std::string why;
  };
  if (identities.empty()) return answer({});
  const auto left = std::make_shared<state>(identities.size(), std::string());
  enter_early([this, identities = std::move(identities), left, answer] {
    for (const instance_identity& each : identities) {
      tell_all(each, pool_.next_clear(each), {}, [left, answer](const result<std::uint64_t>& how) {
        if (!how) left->why = how.error().message();
        if (--left->open != 0) return;
        answer(left->why.empty() ? result<void>() : fail(error_code::removal_pending, left->why));
      });
    }
  });
}

void peers_backend::count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) {
  enter_early([this, identity, answer] { answer(book_.count(identity)); });
}

removal_figures peers_backend::removals() const {
  const auto counted = pool_.copy_counters();
  return {.unconfirmed = counted.unconfirmed,
          .repeated = counted.repeated_removals,
          .dropped = counted.dropped_removals,
          .failed_saves = counted.failed_saves};
}

/// The network's thread has ended, or there never was one.
void peers_backend::stop() noexcept {
  for (auto each = moving_.begin(); each != moving_.end();) {
    const auto next = std::next(each);
    end(each, item_result::unreachable);
    each = next;
  }
  for (auto each = questions_.begin(); each != questions_.end(); each = questions_.begin()) answer(each);
  removals_.stop();
  for (auto* const list : {&put_outcomes_, &got_outcomes_}) {
    if (!list->empty()) (list == &got_outcomes_ ? told_.got : told_.put)(std::exchange(*list, {}));
  }
}

// ---------------------------------------------------------------------------------------------- nodes

void peers_backend::members_changed() {
  note_members();
  const auto& now = pool_.members();
  std::vector<cluster::place> places{{now.self, now.weight}};
  for (const cluster::pool_member& each : now.others) places.push_back({each.name, each.weight});
  std::ranges::sort(places, {}, &cluster::place::name);
  if (places != places_) {
    places_ = places;
    homes_before_ = std::exchange(homes_, cluster::placement(std::move(places)));
    settled_ = pool_.now() + options_.settle;
    plan_offers();
  }
  for (const cluster::pool_member& each : now.others) {
    if (!each.carries_blocks) continue;
    const auto [at, is_new] = nodes_.try_emplace(each.link);
    if (!is_new) continue;
    at->second = node{.name = each.name, .link = each.link};
    plan_offers();
    const auto& departures = pool_.departures.record();
    if (!departures.nodes.empty() || !departures.closed.empty()) send_write_offs(at->second, 0);
    clear_returned(at->second, pool_.now());
    removals_.hasten(pool_.now());
    breakers_.erase(each.name);  // what it did on an earlier link says nothing about this one
  }
  const auto is_gone = [&](const auto& each) {
    return std::ranges::find(now.others, each.first, &cluster::pool_member::name) == now.others.end();
  };
  std::erase_if(breakers_, is_gone);
  std::erase_if(doubts_, is_gone);
  std::vector<peer::link_id> gone;
  for (const auto& [link, each] : nodes_) {
    if (pool_.member_on(link) == nullptr) gone.push_back(link);
  }
  for (const peer::link_id each : gone) closed(each);
  for (const auto& [number, each] : book_.orders()) {
    if (std::ranges::any_of(each.nodes, [&](const auto& name) { return is_departed(name); }))
      removals_.hasten(pool_.now());
  }
  repeat_removals(pool_.now());
  say_standing();
}

/// All nodes that may have copies: also those whose link closed a moment ago or carries no blocks yet, and those that
/// membership has forgotten. What a node holds may outlive it, so that its name is kept until it is written off.
void peers_backend::note_members() {
  const auto& now = pool_.members();
  std::set<std::string> known;
  for (const auto& [name, each] : book_.nodes()) known.insert(name);
  for (const cluster::pool_member& each : now.others) {
    known.erase(each.name);
    note_member(each.name);
  }
  known.insert(now.silent.begin(), now.silent.end());
  for (const std::string& name : known) {
    if (!is_excused(name)) book_.note_away(name);
  }
  for (const std::string& each : now.drained) book_.note_settled(each);
  drop_excess_nodes();
}

/// A node that nothing is known of may be one whose write-off gave way to others.
void peers_backend::note_member(const std::string& name) {
  const bool is_new = !book_.nodes().contains(name);
  if (is_excused(name)) await_returned(name);
  book_.note_here(name);
  if (is_new && pool_.departures.is_incomplete() && !pool_.departures.has(name)) begin_write_off(name);
}

void peers_backend::drop_excess_nodes() {
  for (std::string name = book_.excess_node(); !name.empty(); name = book_.excess_node()) {
    count(pool_.counters.excess_nodes);
    note_event("too many other nodes are known: one that is away is written off", "node", name);
    begin_write_off(name);
  }
}

/// The names that an operator sees. A node that is here counts once it has failed to confirm a removal.
void peers_backend::publish_awaited() {
  std::map<std::string, std::uint64_t> removals;
  for (const auto& [name, known] : book_.nodes()) {
    if (known.departure != 0 && !known.is_settled) removals.try_emplace(name, 0);
  }
  for (const auto& [number, each] : book_.orders()) {
    for (const std::string& name : each.nodes) ++removals[name];
  }
  auto made = std::make_shared<cluster::awaited_nodes>();
  for (const auto& [name, waiting] : removals)
    made->push_back({.name = name, .removals = waiting, .is_here = is_linked(name)});
  std::atomic_ref(pool_.counters.awaited_nodes).store(made->size(), std::memory_order_relaxed);
  pool_.awaited_snapshot.store(std::move(made));
}

void peers_backend::say_standing() {
  const bool stands = !nodes_.empty();
  if (stands_ == stands) return;
  stands_ = stands;
  told_.standing(stands ? result<void>() : fail(error_code::closed, "no other node is there"));
}

void peers_backend::plan_offers() {
  tells_at_ = pool_.now() + offer_pause;
  pool_.wake_at(*tells_at_);
}

/// Homes that change several times in a row are one event.
void peers_backend::tell_change(steady_time now) {
  if (!tells_at_ || now < *tells_at_) return;
  tells_at_.reset();
  if (stands_ == true) told_.standing({});
}

peers_backend::node* peers_backend::find_node(const std::string& name) {
  const auto found = std::ranges::find_if(nodes_, [&](const auto& each) { return each.second.name == name; });
  return found == nodes_.end() || pool_.departures.has(name) ? nullptr : &found->second;
}

bool peers_backend::is_linked(const std::string& name) const {
  return std::ranges::any_of(nodes_, [&](const auto& each) { return each.second.name == name; });
}

peers_backend::node* peers_backend::find_link(peer::link_id link) {
  const auto found = nodes_.find(link);
  return found == nodes_.end() ? nullptr : &found->second;
}

bool peers_backend::admits(const std::string& name) {
  return breakers_[name].admits(pool_.now());
}

/// A home that answers again may take what was not offered to it meanwhile.
void peers_backend::note(const std::string& name, bool is_good) {
  redis::breaker& guard = breakers_[name];
  const bool was_closed = guard.state(pool_.now()) == redis::breaker_state::closed;
  guard.note(is_good, pool_.now());
  if (!was_closed && guard.state(pool_.now()) == redis::breaker_state::closed) plan_offers();
}

/// Counts as an answer of the node while few instances are doubted, since one client's blocks may be wrong anywhere.
void peers_backend::note_bytes(const std::string& name, const instance_identity& identity, bool are_right) {
  auto& doubted = doubts_[name];
  if (are_right) doubted.clear();
  if (!are_right && doubted.size() < doubted_from) doubted.insert(identity);
  note(name, doubted.size() < doubted_from);
}

peers_backend::homes peers_backend::homes_of(instance_identity identity, const block_key& key) const {
  homes all;
  std::size_t count = 0;
  const auto add = [&](const cluster::placement& from) {
    std::array<std::size_t, most_replicas> indexes{};
    const std::size_t wanted = std::min(options_.replicas, most_replicas);
    for (std::size_t i = 0, found = from.homes(identity, key, std::span(indexes).first(wanted)); i < found; ++i) {
      const std::string& name = from.name(indexes[i]);
      if (std::ranges::find(all.names, name) == all.names.end()) all.names[count++] = name;
    }
  };
  add(homes_);
  all.present = count;
  all.is_here =
      std::find(all.names.begin(), all.names.begin() + count, pool_.members().self) != all.names.begin() + count;
  if (pool_.now() < settled_) add(homes_before_);
  return all;
}

/// Asks the node to bind the instance, if nobody has, or it has not answered for a while.
peers_backend::binding& peers_backend::bound(node& at, instance_identity identity) {
  const auto [found, is_new] = at.bindings.try_emplace(identity);
  binding& of = found->second;
  of.used = pool_.now();
  if (!is_new && (of.handle != 0 || pool_.now() < of.again_at)) return of;
  const auto spec = specs_.find(identity);
  of.is_refused = spec == specs_.end();
  of.again_at = pool_.now() + (of.is_refused ? refusal_lasts : options_.timeout);
  if (of.is_refused) return of;
  std::erase_if(binds_, [&](const auto& each) { return each.second == std::pair(at.link, identity); });
  const std::uint64_t number = next_number_++;
  binds_.emplace(number, std::pair(at.link, identity));
  pool_.send(at.link, frame_type::bind, number,
             peer::encode(peer::bind_request{identity, pool_.told_cleared(identity), spec->second,
                                             right_of(pool_, at.link, spec->second)}));
  return of;
}

void peers_backend::when_bound(node& at, instance_identity identity, steady_time until, std::function<void()> then) {
  binding& of = bound(at, identity);
  if (of.handle != 0 || of.is_refused) return then();
  wait_for(of, until, std::move(then));
}

/// What nobody waits for any more makes room: the node may never answer.
void peers_backend::wait_for(binding& of, steady_time until, std::function<void()> then) {
  while (!of.waiting.empty() && of.waiting.front().first <= pool_.now()) of.waiting.pop_front();
  of.waiting.emplace_back(until, std::move(then));
}

void peers_backend::take_bound(node& at, instance_identity identity, std::span<const std::byte> body) {
  auto answer = peer::decode_bind_answer(body);
  const auto found = at.bindings.find(identity);
  if (!answer) return;
  if (const auto spec = specs_.find(identity);
      spec != specs_.end() && !has_right(pool_, at.link, spec->second, *answer))
    give_back(at.link, std::exchange(answer->handle, 0));
  if (found == at.bindings.end() || found->second.is_refused) return give_back(at.link, answer->handle);
  found->second.handle = answer->handle;
  found->second.is_refused = answer->handle == 0;
  if (found->second.is_refused) found->second.again_at = pool_.now() + refusal_lasts;
  if (const auto spec = specs_.find(identity); spec != specs_.end())
    pool_.learn_cleared(identity, answer->cleared, spec->second);
  for (const auto& [until, then] : std::exchange(found->second.waiting, {})) then();
  pump(at);
}

/// Nothing is under way with an instance that was not used for so long.
void peers_backend::give_back_unused(steady_time now) {
  if (now < looks_at_bindings_) return;
  looks_at_bindings_ = now + binding_lasts / 2;
  for (auto& [link, each] : nodes_) {
    std::erase_if(each.bindings, [&, to = link](const auto& one) {
      const binding& of = one.second;
      if (now - of.used < binding_lasts) return false;
      give_back(to, of.handle);
      return true;
    });
  }
}

/// 0: nothing is bound.
void peers_backend::give_back(peer::link_id to, std::uint32_t handle) {
  if (handle != 0) pool_.send(to, frame_type::unbind, 0, peer::encode(peer::unbind_request{handle}));
}

/// Whatever the link was asked goes on elsewhere, or ends.
void peers_backend::closed(peer::link_id which) {
  const auto found = nodes_.find(which);
  if (found == nodes_.end()) return;
  const node gone = std::move(found->second);
  nodes_.erase(found);
  std::vector<std::uint64_t> tokens;
  for (auto& [token, each] : moving_) {
    if (each.at != which) continue;
    each.at = 0;
    if (each.now != stage::sending) tokens.push_back(token);  // the bytes of the others are the network's
  }
  for (const std::uint64_t token : tokens) {
    const auto still = moving_.find(token);
    if (still == moving_.end()) continue;
    count(pool_.counters.unanswered);
    if (is_offer(token))
      offer_next(still, still->second.now == stage::sent ? item_result::unknown : item_result::refused);
    else
      ask_next(token, still->second);
  }
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, each] : parts_) {
    if (each.at == which) numbers.push_back(number);
  }
  for (const std::uint64_t each : std::exchange(numbers, {})) end_part(each, {}, false);
  std::erase_if(binds_, [&](const auto& each) { return each.second.first == which; });
  for (const auto& [number, each] : forgets_) {
    if (each.link == which) numbers.push_back(number);
  }
  for (const std::uint64_t each : numbers) end_removal(each, 0, gone.name + " went away");
  for (const auto& [identity, each] : gone.bindings) {
    for (const auto& [until, then] : each.waiting) then();  // they find no node, and end
  }
  for (auto& [link, each] : nodes_) pump(each);
  say_standing();
}

// ---------------------------------------------------------------------------------------------- blocks

void peers_backend::begin_put(item what, steady_time now) {
  const std::uint64_t token = 2 * next_number_++ + 1;
  const auto begun = moving_.try_emplace(token).first;
  moving& made = begun->second;
  made.of = homes_of(what.name.identity, what.name.key());
  made.cleared = pool_.carried_out(what.name.identity);
  made.own_clears = pool_.counters.own_clears;
  made.what = std::move(what);
  made.begun = now;
  deadlines_.emplace_back(now + options_.timeout, token);
  pool_.wake_at(deadlines_.front().first);
  offer_next(begun, item_result::refused);
}

/// Offers it to the next of its homes. There is none: it ends, as it went so far.
void peers_backend::offer_next(moving_map::iterator which, item_result so_far) {
  moving& what = which->second;
  what.was_stored |= so_far == item_result::done;
  what.may_be_stored |= so_far == item_result::unknown;
  leave_node(what, which->first);
  what.at = 0;
  what.now = stage::queued;
  what.result.reset();
  const bool is_late = pool_.now() - what.begun >= options_.timeout;  // its deadline is past, and there is no other one
  const bool is_final = is_late || so_far == item_result::wrong;      // another home gets the same bytes
  while (!is_final && what.next < what.of.present) {
    node* const home = find_node(what.of.names[what.next++]);
    if (home != nullptr && admits(home->name)) return queue_at(*home, which->first, what);
  }
  end(which, what.of.is_here && so_far == item_result::refused ? item_result::own : so_far);
}

void peers_backend::begin_get(item what, steady_time now) {
  if (pool_.removals.has(what.name.identity, what.name.key(), now)) {  // the removal may not have reached its home yet
    got_outcomes_.push_back({.token = what.token, .what = item_result::missing, .micros = 0});
    return;
  }
  const std::uint64_t token = 2 * next_number_++;
  const auto begun = moving_.try_emplace(token).first;
  moving& made = begun->second;
  made.of = homes_of(what.name.identity, what.name.key());
  if (made.of.present == most_replicas) {  // from the one that is asked for less
    const node* const first = find_node(made.of.names[0]);
    const node* const second = find_node(made.of.names[1]);
    if (first != nullptr && second != nullptr && second->fetching < first->fetching)
      std::swap(made.of.names[0], made.of.names[1]);
  }
  made.of.sent_us = pool_.name_of(what.from);  // whoever follows a request asks its node, which names no other
  made.what = std::move(what);
  made.begun = now;
  deadlines_.emplace_back(now + options_.timeout, token);
  pool_.wake_at(deadlines_.front().first);
  ask_next(token, made);
}

void peers_backend::ask_next(std::uint64_t token, moving& what) {
  what.landed = 0;
  what.sum.reset();
  what.now = stage::queued;
  if (const std::string home = std::exchange(what.of.sent_us, {}); !home.empty()) {
    what.insists = true;
    if (node* const back = find_node(home); back != nullptr && admits(home)) return queue_at(*back, token, what);
  }
  while (what.next < what.of.names.size()) {
    const std::string& name = what.of.names[what.next++];
    node* const home = name.empty() ? nullptr : find_node(name);
    if (home != nullptr && admits(name)) return queue_at(*home, token, what);
  }
  const auto found = moving_.find(token);
  end(found, what.was_wrong ? item_result::wrong : what.was_answered ? item_result::missing : item_result::refused);
}

void peers_backend::queue_at(node& at, std::uint64_t token, moving& what) {
  what.at = at.link;
  (is_offer(token) ? at.to_offer : at.to_fetch).push(what.what.name.identity, token);
  must_pump_ = true;
}

void peers_backend::pump(node& at) {
  pump_queue(at, true);
  pump_queue(at, false);
}

/// Asks for, or offers, what the window has room for: of each instance in the order in which it was wanted.
void peers_backend::pump_queue(node& at, bool up) {
  auto& queue = up ? at.to_fetch : at.to_offer;
  std::uint64_t& under_way = up ? at.fetching : at.offering;
  peer::block_request frame;
  frame_type type{};
  const auto say = [&] {
    if (!frame.blocks.empty()) pool_.send(at.link, type, next_number_++, peer::encode(frame));
    frame.blocks.clear();
  };
  while (!queue.empty()) {
    const std::uint64_t token = queue.front();
    const auto found = moving_.find(token);
    if (found == moving_.end() || found->second.at != at.link || found->second.now != stage::queued) {
      // It ended while it waited.
      queue.pop(0);
      continue;
    }
    moving& what = found->second;
    if (!up && what.own_clears != pool_.counters.own_clears) {  // nodes trust this one again, and the block is older
      queue.pop(0);
      end(found, item_result::refused);
      continue;
    }
    binding& of = bound(at, what.what.name.identity);
    if (of.is_refused) {
      queue.pop(0);
      what.was_answered = true;
      if (up)
        ask_next(token, what);
      else
        offer_next(found, item_result::full);
      continue;
    }
    if (of.handle == 0) {  // blocks of other instances do not wait for this one
      queue.pop(0);
      wait_for(of, what.begun + options_.timeout, [this, link = at.link, token] {
        node* const still = find_link(link);
        const auto waits = moving_.find(token);
        if (still != nullptr && waits != moving_.end() && waits->second.at == link)
          queue_at(*still, token, waits->second);
      });
      continue;
    }
    const std::uint64_t bytes = what.what.memory.size();
    if (under_way != 0 && under_way + bytes > options_.window) break;
    const frame_type wanted = !up ? frame_type::offer : what.insists ? frame_type::fetch_here : frame_type::fetch;
    const bool fits = type == wanted && frame.handle == of.handle && frame.group == what.what.name.group &&
                      !frame.blocks.empty() && frame.blocks.front().second.size == what.what.name.full.size &&
                      frame.blocks.size() < peer::most_keys && (up || frame.cleared == what.cleared);
    if (!fits) say();
    type = wanted;
    frame.handle = of.handle;
    frame.group = what.what.name.group;
    frame.cleared = up ? pool_.cleared(what.what.name.identity) : what.cleared;
    frame.blocks.emplace_back(token, what.what.name.full);
    under_way += bytes;
    what.now = stage::asked;
    queue.pop(bytes);
  }
  say();
}

/// It is not under way at its node any more.
void peers_backend::leave_node(moving& what, std::uint64_t token) {
  node* const at = find_link(what.at);
  if (at == nullptr || what.now == stage::queued) return;
  (is_offer(token) ? at->offering : at->fetching) -= what.what.memory.size();
}

void peers_backend::end(moving_map::iterator which, item_result how) {
  const auto& [token, what] = *which;
  leave_node(which->second, token);
  if (what.was_stored) {
    how = item_result::done;
  } else if (what.may_be_stored) {
    how = item_result::unknown;
  }
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(pool_.now() - what.begun);
  auto& outcomes = is_offer(token) ? put_outcomes_ : got_outcomes_;
  outcomes.push_back({.token = what.what.token,
                      .what = how,
                      .micros = static_cast<std::uint64_t>(took.count()),
                      .is_copy = how == item_result::done && !what.of.is_here});
  moving_.erase(which);
}

peer::landing peers_backend::expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
  const auto found = moving_.find(head.token);
  if (found == moving_.end() || is_offer(head.token)) return {};
  moving& what = found->second;
  if (what.at != from || what.now != stage::asked || head.total != what.what.memory.size() ||
      head.offset != what.landed)
    return {};
  if (!what.sum) what.sum = std::make_unique<running_checksum>();
  return {what.what.memory.subspan(head.offset, bytes), what.sum.get()};
}

void peers_backend::landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
  const auto found = moving_.find(head.token);
  if (found == moving_.end()) return;
  moving& what = found->second;
  what.landed += piece.size();
  if (what.landed < what.what.memory.size()) return;
  node& at = nodes_.at(from);
  const block_name& name = what.what.name;
  const bool is_summed = what.sum && what.sum->bytes() == what.landed;
  const std::uint64_t hash = is_summed ? what.sum->value() : checksum_of(what.what.memory);
  const bool is_right = head.checksum == bind_checksum(hash, name.identity, name.group, name.full);
  note_bytes(at.name, name.identity, is_right);
  if (is_right) {
    count(pool_.counters.fetched);
    count(pool_.counters.fetched_bytes, what.what.memory.size());
    end(found, item_result::done);
  } else {
    count(pool_.counters.wrong);
    what.was_wrong = true;
    ask_for_check(at, head.token, what);
    leave_node(what, head.token);
    ask_next(head.token, what);
  }
  pump(at);
}

/// Its own copy may be what is wrong.
void peers_backend::ask_for_check(const node& home, std::uint64_t token, const moving& fetched) {
  const block_name& name = fetched.what.name;
  const auto found = home.bindings.find(name.identity);
  if (found == home.bindings.end() || found->second.handle == 0) return;
  pool_.send(home.link, frame_type::check, 0,
             peer::encode(peer::block_request{
                 .handle = found->second.handle, .group = name.group, .blocks = {{token, name.full}}, .cleared = {}}));
}

void peers_backend::take_fetched(node& at, std::span<const std::byte> body) {
  const auto answers = peer::decode_block_answers(body);
  if (!answers) return pool_.close(at.link, "a node sent " + answers.error().message());
  for (const auto& [token, how] : *answers) {
    const auto found = moving_.find(token);
    if (found == moving_.end() || is_offer(token) || found->second.at != at.link || found->second.now != stage::asked)
      continue;
    note(at.name, true);
    count(pool_.counters.missed);
    found->second.was_answered = true;
    leave_node(found->second, token);
    ask_next(token, found->second);
  }
  for (auto& [link, each] : nodes_) pump(each);
}

/// The home has much to do, and names a node that it sent these blocks lately. That one is asked once.
void peers_backend::take_elsewhere(node& at, std::span<const std::byte> body) {
  const auto named = peer::decode_elsewhere_answer(body);
  if (!named) return pool_.close(at.link, "a node sent " + named.error().message());
  node* const other = find_node(named->node);
  const bool is_usable = other != nullptr && other->link != at.link && admits(other->name);
  for (const std::uint64_t token : named->tokens) {
    const auto found = moving_.find(token);
    if (found == moving_.end() || is_offer(token) || found->second.at != at.link || found->second.now != stage::asked)
      continue;
    moving& what = found->second;
    note(at.name, !what.insists);
    leave_node(what, token);
    if (!what.insists) what.of.sent_us = at.name;
    if (what.insists || !is_usable) {
      ask_next(token, what);
      continue;
    }
    what.insists = true;
    what.landed = 0;
    what.sum.reset();
    what.now = stage::queued;
    queue_at(*other, token, what);
  }
}

void peers_backend::take_accept(node& at, std::span<const std::byte> body) {
  const auto answers = peer::decode_block_answers(body);
  if (!answers) return pool_.close(at.link, "a node sent " + answers.error().message());
  for (const auto& [token, how] : *answers) {
    const auto found = moving_.find(token);
    if (found == moving_.end() || !is_offer(token) || found->second.at != at.link || found->second.now != stage::asked)
      continue;
    note(at.name, true);
    if (how == block_answer::send) {
      send_bytes(at, token, found->second);
    } else {
      if (how == block_answer::outdated) bind_again(at, found->second.what.name.identity);
      if (how == block_answer::have) count(pool_.counters.offered);
      offer_next(found, how == block_answer::have ? item_result::done : item_result::full);
    }
  }
  pump(at);
}

/// The node knows of a clear that this one has not carried out: the answer to the next bind tells of it.
void peers_backend::bind_again(node& at, instance_identity identity) {
  const auto found = at.bindings.find(identity);
  if (found == at.bindings.end() || found->second.handle == 0) return;
  found->second.handle = 0;
  found->second.again_at = pool_.now();
}

void peers_backend::send_bytes(node& at, std::uint64_t token, moving& what) {
  const block_name& name = what.what.name;
  const std::uint64_t hash = what.what.hash ? *what.what.hash : checksum_of(what.what.memory);
  peer::piece_header head;
  head.token = token;
  head.what = static_cast<std::uint16_t>(piece_kind::offered);
  head.checksum = bind_checksum(hash, name.identity, name.group, name.full);
  what.now = stage::sending;
  what.sends_on = at.link;
  pool_.send_block(at.link, head, what.what.memory);
}

void peers_backend::sent(peer::link_id to, std::uint64_t token, bool is_sent) {
  const auto found = moving_.find(token);
  if (found == moving_.end() || found->second.now != stage::sending || found->second.sends_on != to) return;
  found->second.now = stage::sent;
  if (!is_sent || found->second.at == 0) return offer_next(found, item_result::unknown);
  if (found->second.result) end_put(found, *found->second.result);
}

/// The node has said what became of the bytes.
void peers_backend::end_put(moving_map::iterator which, item_result how) {
  if (which->second.now == stage::sending) {
    which->second.result = how;
    return;
  }
  if (how == item_result::done) {
    count(pool_.counters.offered);
    count(pool_.counters.offered_bytes, which->second.what.memory.size());
  }
  offer_next(which, how);
}

void peers_backend::take_stored(node& at, std::span<const std::byte> body) {
  const auto answers = peer::decode_block_answers(body);
  if (!answers) return pool_.close(at.link, "a node sent " + answers.error().message());
  for (const auto& [token, how] : *answers) {
    const auto found = moving_.find(token);
    if (found == moving_.end() || found->second.at != at.link || found->second.now < stage::sending) continue;
    note_bytes(at.name, found->second.what.name.identity, how != block_answer::wrong);
    end_put(found, how == block_answer::stored  ? item_result::done
                   : how == block_answer::wrong ? item_result::wrong
                                                : item_result::full);
  }
  pump(at);
}

// ---------------------------------------------------------------------------------------------- questions

/// The other nodes that each key belongs to, or did lately; places in `keys`, ascending.
std::map<std::string, std::vector<std::uint32_t>> peers_backend::by_home(const std::vector<block_name>& keys) const {
  std::map<std::string, std::vector<std::uint32_t>> all;
  const auto add = [&](const cluster::placement& from) {
    std::vector<std::vector<std::uint32_t>> by_index(from.size());
    std::array<std::size_t, most_replicas> indexes{};
    const auto wanted = std::span(indexes).first(std::min(options_.replicas, most_replicas));
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      const std::size_t found = from.homes(keys[i].identity, keys[i].key(), wanted);
      for (const std::size_t index : wanted.first(found)) by_index[index].push_back(i);
    }
    for (std::size_t index = 0; index < by_index.size(); ++index) {
      if (by_index[index].empty() || from.name(index) == pool_.members().self) continue;
      auto& into = all[from.name(index)];
      const auto middle = static_cast<std::ptrdiff_t>(into.size());
      into.insert(into.end(), by_index[index].begin(), by_index[index].end());
      std::inplace_merge(into.begin(), into.begin() + middle, into.end());
      into.erase(std::unique(into.begin(), into.end()), into.end());
    }
  };
  add(homes_);
  if (pool_.now() < settled_) add(homes_before_);
  return all;
}

void peers_backend::ask(std::vector<block_name> keys, steady_time until, std::function<void(presence)> answer_to) {
  const std::uint64_t number = next_number_++;
  questions_.emplace(number, question{.held = std::vector<bool>(keys.size()),
                                      .open = 1,
                                      .is_complete = true,
                                      .until = until,
                                      .answer = std::move(answer_to)});
  auto whom = by_home(keys);
  const auto all = std::make_shared<const std::vector<block_name>>(std::move(keys));
  for (auto& [name, which] : whom) {
    node* const home = find_node(name);
    if (home == nullptr || breakers_[name].state(pool_.now()) == redis::breaker_state::open) {
      // Who is not there any more has nothing to say.
      const bool is_there =
          std::ranges::find(pool_.members().others, name, &cluster::pool_member::name) != pool_.members().others.end();
      if (is_there) questions_.at(number).is_complete = false;
      continue;
    }
    ++questions_.at(number).open;
    const peer::link_id link = home->link;
    when_bound(*home, all->front().identity, until, [this, link, number, all, which = std::move(which)] {
      node* const still = find_link(link);
      if (still == nullptr) return end_part_of(number, false);
      send_part(*still, number, *all, which);
    });
  }
  end_part_of(number, true);
  if (questions_.contains(number)) pool_.wake_at(until);
}

/// Keys of one question have one instance and one group.
void peers_backend::send_part(node& at, std::uint64_t of, const std::vector<block_name>& keys,
                              std::vector<std::uint32_t> which) {
  const auto open = questions_.find(of);
  if (open == questions_.end()) return;  // it was answered without this node
  const binding& known = bound(at, keys.front().identity);
  if (known.handle == 0) return end_part_of(of, true);  // it refuses the instance
  // All keys of a frame have one width: those of others have a frame of their own.
  const auto others = std::ranges::stable_partition(
      which,
      [&keys, width = keys[which.front()].full.size](std::uint32_t each) { return keys[each].full.size == width; });
  if (!others.empty()) {
    ++open->second.open;
    send_part(at, of, keys, {others.begin(), others.end()});
    which.erase(others.begin(), others.end());
  }
  peer::locate_request frame{
      .handle = known.handle, .group = keys.front().group, .keys = {}, .cleared = pool_.cleared(keys.front().identity)};
  for (const std::uint32_t each : which) frame.keys.push_back(keys[each].full);
  const std::uint64_t number = next_number_++;
  parts_.emplace(number, part{.of = of, .at = at.link, .which = std::move(which)});
  pool_.send(at.link, frame_type::locate, number, peer::encode(frame));
}

void peers_backend::take_located(std::uint64_t number, std::span<const std::byte> body) {
  auto answer_of = peer::decode_locate_answer(body);
  end_part(number, answer_of ? answer_of->held : std::vector<bool>(), answer_of.has_value());
}

void peers_backend::end_part(std::uint64_t number, const std::vector<bool>& held, bool is_complete) {
  const auto found = parts_.find(number);
  if (found == parts_.end()) return;
  const part one = std::move(found->second);
  parts_.erase(found);
  if (const auto of = questions_.find(one.of); of != questions_.end()) {
    for (std::size_t i = 0; i < std::min(held.size(), one.which.size()); ++i) {
      if (held[i]) of->second.held[one.which[i]] = true;
    }
  }
  end_part_of(one.of, is_complete);
}

void peers_backend::end_part_of(std::uint64_t number, bool is_complete) {
  const auto of = questions_.find(number);
  if (of == questions_.end()) return;
  of->second.is_complete &= is_complete;
  if (--of->second.open == 0) answer(of);
}

void peers_backend::answer(std::map<std::uint64_t, question>::iterator which) {
  question over = std::move(which->second);
  if (over.open != 0)  // nobody waits for what was not answered in time
    std::erase_if(parts_, [&](const auto& each) { return each.second.of == which->first; });
  questions_.erase(which);
  over.answer({.held = std::move(over.held), .is_complete = over.is_complete && over.open == 0});
}

// ---------------------------------------------------------------------------------------------- removal

void peers_backend::tell_all(instance_identity identity, std::uint64_t cleared, const std::vector<block_key>& keys,
                             std::function<void(result<std::uint64_t>)> answer_to) {
  remote::removals::round made;
  made.order = {.identity = identity, .cleared = cleared, .keys = keys, .spec = spec_of(identity)};
  made.answer = std::move(answer_to);
  begin_removal(std::move(made));
}

std::vector<instance_spec> peers_backend::specs_in(const removal_book& book) {
  std::vector<instance_spec> specs;
  for (const auto& [identity, each] : book.instances()) {
    byte_reader reader(each.spec);
    if (auto spec = decode_instance_spec(reader)) specs.push_back(std::move(*spec));
  }
  return specs;
}

/// Of an instance that was used here, by an earlier worker perhaps. Empty: it is not known.
std::vector<std::byte> peers_backend::spec_of(const instance_identity& identity) const {
  if (const auto used = specs_.find(identity); used != specs_.end()) return used->second;
  const auto known = book_.instances().find(identity);
  return known == book_.instances().end() ? std::vector<std::byte>() : known->second.spec;
}

/// A round goes to all nodes, also to those that have confirmed an earlier one: they may have got a block since from a
/// node that had not.
void peers_backend::begin_removal(remote::removals::round made) {
  made.open = 1;
  made.deadline = pool_.now() + options_.timeout;
  for (const auto& [name, each] : book_.nodes()) made.order.nodes.insert(name);
  const std::uint64_t number = removals_.begin(std::move(made), pool_.now());
  remote::removals::round& round = *removals_.find(number);
  for (auto& [link, each] : nodes_) {
    round.order.nodes.erase(each.name);
    send_forget(each, number);
  }
  pool_.wake_at(round.deadline);
  if (round.repeats == 0) remove_hosted(number);
  end_removal_of(number, 0, {});
}

/// In place of removals that are too many. What others stored here goes as well, or they would refuse this node's
/// blocks.
std::uint64_t peers_backend::begin_clear(const instance_identity& identity) {
  const std::uint64_t number = pool_.next_clear(identity);
  pool_.clear_hosted(identity, [](const std::string&) {});
  return number;
}

/// Removes blocks that other nodes stored here since this one's own went. The answer waits for it beyond its time.
void peers_backend::remove_hosted(std::uint64_t number) {
  remote::removals::round& round = *removals_.find(number);
  ++round.open;
  round.is_own_open = true;
  const auto end = [this, number](const std::string& reason) {
    auto* const found = removals_.find(number);
    if (found == nullptr) return;
    found->is_own_open = false;
    if (found->deadline <= pool_.now()) found->open = 1;
    end_removal_of(number, 0, reason);
  };
  if (round.order.cleared != 0)
    pool_.clear_hosted(round.order.identity, end);
  else
    pool_.remove_hosted(round.order.identity, round.order.keys, end);
}

/// Whether the node has bound the instance, or refused to, means nothing: it may have blocks of it all the same.
void peers_backend::send_forget(const node& home, std::uint64_t number) {
  remote::removals::round& round = *removals_.find(number);
  const auto& keys = round.order.keys;
  const auto right = right_of(pool_, home.link, round.order.spec);
  for (std::size_t first = 0; first == 0 || first < keys.size(); first += peer::most_keys) {
    const auto some = std::span(keys).subspan(first, std::min(peer::most_keys, keys.size() - first));
    const std::uint64_t request = next_number_++;
    forgets_.emplace(request, forget{.link = home.link, .node = home.name, .removal = number});
    ++round.open;
    pool_.send(home.link, frame_type::forget, request,
               peer::encode(peer::forget_request{
                   round.order.identity, round.order.cleared, {some.begin(), some.end()}, round.order.spec, right}));
  }
}

void peers_backend::take_forgot(std::uint64_t number, std::span<const std::byte> body) {
  const auto how = peer::decode_forget_answer(body);
  end_removal(number, how ? how->removed : 0, how ? how->why : how.error().message());
}

void peers_backend::end_removal(std::uint64_t number, std::uint64_t removed, const std::string& why) {
  const auto found = forgets_.find(number);
  if (found == forgets_.end()) return;
  const forget asked = std::move(found->second);
  forgets_.erase(found);
  if (auto* const of = removals_.find(asked.removal); of != nullptr && !why.empty()) of->order.nodes.insert(asked.node);
  end_removal_of(asked.removal, removed, why);
}

void peers_backend::end_removal_of(std::uint64_t number, std::uint64_t removed, const std::string& why) {
  auto* const of = removals_.find(number);
  if (of == nullptr) return;
  of->removed += removed;
  if (!why.empty()) of->reason = why;
  if (--of->open == 0) answer_removal(number);
}

void peers_backend::answer_removal(std::uint64_t number) {
  remote::removals::round& over = *removals_.find(number);
  for (auto asked = forgets_.begin(); asked != forgets_.end();) {
    const bool is_open = asked->second.removal == number;
    if (is_open) over.order.nodes.insert(asked->second.node);
    asked = is_open ? forgets_.erase(asked) : std::next(asked);
  }
  release_departed(over.order.nodes);
  removals_.end(number, pool_.now());
  // The names go with the figures; while removals wait they go with the file, since there may be many.
  if (book_.orders().empty() && pool_.counters.awaited_nodes != 0) publish_awaited();
  save_removals(pool_.now());
}

/// Those that a node which is here has not confirmed, or one that never comes back, a round of each at a time.
void peers_backend::repeat_removals(steady_time now) {
  const auto is_useful = [this](const removal_book::open_removal& order) {
    return std::ranges::any_of(order.nodes,
                               [&](const std::string& name) { return is_linked(name) || is_departed(name); });
  };
  for (auto& each : removals_.take_due(now, is_useful)) begin_removal(std::move(each));
}

void peers_backend::count_orders() {
  const auto figures = removals_.figures();
  std::atomic_ref(pool_.counters.unconfirmed).store(figures.unconfirmed, std::memory_order_relaxed);
  std::atomic_ref(pool_.counters.repeated_removals).store(figures.repeated, std::memory_order_relaxed);
  std::atomic_ref(pool_.counters.dropped_removals).store(figures.dropped, std::memory_order_relaxed);
  std::atomic_ref(pool_.counters.failed_saves).store(figures.failed_saves, std::memory_order_relaxed);
  std::atomic_ref(pool_.counters.write_offs).store(pool_.departures.record().nodes.size(), std::memory_order_relaxed);
}

/// At once, or with the next alarm where the file was written a moment ago: what is answered as pending is in it.
void peers_backend::save_removals(steady_time now) {
  if (removals_.save(now, pool_.clear_changes() + pool_.departures.changes())) publish_awaited();
  count_orders();
  pool_.wake_at(removals_.next());
  removals_.give_answers();
}

void peers_backend::note_event(const std::string& event, const std::string& field, const std::string& value) const {
  if (told_.notice) told_.notice(event, field, value);
}

// ---------------------------------------------------------------------------------------------- nodes that never
// return

/// It is not here, and no removal waits for it.
bool peers_backend::is_departed(const std::string& name) const {
  return !is_linked(name) && (is_excused(name) || book_.is_settled(name));
}

/// It was written off and has not been here since. One that has may have cleared its blocks, without a word of that
/// coming back, and have others now: it does not clear those for the same write-off.
bool peers_backend::is_excused(const std::string& name) const {
  return pool_.departures.has(name) && !book_.nodes().contains(name);
}

bool peers_backend::is_present(const std::string& name) const {
  const auto& others = pool_.members().others;
  return std::ranges::find(others, name, &cluster::pool_member::name) != others.end();
}

/// A node that was drained and left without a confirmation may have what was removed, on its disk for instance: it
/// counts as written off. So does one of whose blocks none should be left.
void peers_backend::release_departed(std::set<std::string>& nodes) {
  std::erase_if(nodes, [&](const std::string& name) {
    if (!is_departed(name)) return false;
    if (!is_excused(name)) begin_write_off(name);
    return true;
  });
}

/// From here on its name stands among the write-offs; it is kept twice only while it is here.
void peers_backend::begin_write_off(const std::string& name) {
  pool_.departures.begin(name, calendar_ns());
  if (!is_present(name)) book_.forget_node(name);
  removals_.hasten_save(pool_.now());  // the operator is answered when it is in the file
  note_event("a node is written off: no removal waits for it", "node", name);
  for (const auto& [link, each] : nodes_) send_write_offs(each, 0);
}

result<std::uint64_t> peers_backend::write_off(const std::string& name) {
  const auto& members = pool_.members();
  const auto is_in = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto waiting = static_cast<std::uint64_t>(
      std::ranges::count_if(book_.orders(), [&](const auto& each) { return each.second.nodes.contains(name); }));
  if (name == members.self) return fail(error_code::invalid_argument, "`" + name + "` is this node itself");
  if (is_present(name)) return fail(error_code::invalid_argument, "node `" + name + "` is live: stop it first");
  const bool is_known = book_.nodes().contains(name) || is_in(members.silent) || is_in(members.stopped);
  if (waiting == 0 && !is_known && !pool_.departures.has(name)) {
    return fail(error_code::invalid_argument,
                "no node `" + name + "` is known here; `cenote status` lists those that removals wait for");
  }
  begin_write_off(name);  // once more, perhaps: another node may have met it since
  removals_.hasten(pool_.now());
  repeat_removals(pool_.now());
  count_orders();
  return waiting;
}

/// A node that is here ends what is under way with it by the end of its link, and clears its blocks on the next one.
void peers_backend::take_write_off(const std::string& name) {
  note_event("another node has written a node off: no removal waits for it", "node", name);
  if (!is_present(name)) book_.forget_node(name);
  count_orders();
  const auto found = std::ranges::find_if(nodes_, [&](const auto& each) { return each.second.name == name; });
  if (found != nodes_.end()) return pool_.close(found->first, "the node was written off, and has blocks");
  removals_.hasten(pool_.now());
  repeat_removals(pool_.now());
}

void peers_backend::send_write_offs(const node& receiver, std::uint64_t request) {
  const auto& record = pool_.departures.record();
  peer::write_off_notice notice{.nodes = {}, .closed = {record.closed.begin(), record.closed.end()}};
  for (const auto& each : record.nodes) {
    if (each.first == receiver.name || !pool_.departures.is_closed(each.second)) notice.nodes.emplace_back(each);
  }
  pool_.send(receiver.link, frame_type::write_off, request, peer::encode(notice));
}

/// It has cleared its blocks for this write-off, and may have others now: it stands in the book again.
void peers_backend::take_return(const std::string& name) {
  if (!is_excused(name)) return;
  await_returned(name);
  book_.note_away(name);
}

/// Rounds that began while it was excused are not over without it.
void peers_backend::await_returned(const std::string& name) {
  for (const auto& [number, each] : removals_.rounds()) removals_.find(number)->order.nodes.insert(name);
}

/// One that was written off and is here has to clear its blocks before any of them is used.
void peers_backend::clear_returned(node& returned, steady_time now) {
  const std::uint64_t number = pool_.departures.number_of(returned.name);
  if (number == 0 || now < returned.clear_again) return;
  returned.clear_request = next_number_++;
  returned.clear_number = number;
  returned.clear_again = now + clear_pause;
  send_write_offs(returned, returned.clear_request);
  pool_.wake_at(returned.clear_again);
}

void peers_backend::take_cleared(node& returned, std::span<const std::byte> body) {
  returned.clear_request = 0;
  const auto answer = peer::decode_forget_answer(body);
  if (!answer || !answer->why.empty()) return;  // it is asked again
  pool_.departures.close(returned.name, returned.clear_number);
  book_.note_here(returned.name);
  for (const auto& [link, each] : nodes_) send_write_offs(each, 0);  // ahead of what is confirmed to them from now on
  count_orders();
  note_event("a node that was written off is back, and has cleared its blocks", "node", returned.name);
}

// ---------------------------------------------------------------------------------------------- events

void peers_backend::heard(peer::link_id from, frame_type type, std::uint64_t request, std::span<const std::byte> body) {
  node* const at = find_link(from);
  if (at == nullptr) return;
  if (type == frame_type::bound) {
    const auto asked = binds_.find(request);
    if (asked == binds_.end() || asked->second.first != from) return;
    const instance_identity identity = asked->second.second;
    binds_.erase(asked);
    return take_bound(*at, identity, body);
  }
  if (type == frame_type::fetched) return take_fetched(*at, body);
  if (type == frame_type::elsewhere) return take_elsewhere(*at, body);
  if (type == frame_type::accept) return take_accept(*at, body);
  if (type == frame_type::stored) return take_stored(*at, body);
  if (const auto asked = parts_.find(request);
      type == frame_type::located && asked != parts_.end() && asked->second.at == from)
    return take_located(request, body);
  if (type == frame_type::forgot && request != 0 && request == at->clear_request) return take_cleared(*at, body);
  if (const auto asked = forgets_.find(request);
      type == frame_type::forgot && asked != forgets_.end() && asked->second.link == from)
    take_forgot(request, body);
}

void peers_backend::flush() {
  while (std::exchange(must_pump_, false)) {
    for (auto& [link, each] : nodes_) pump(each);
  }
  if (!got_outcomes_.empty()) told_.got(std::exchange(got_outcomes_, {}));
  if (!put_outcomes_.empty()) told_.put(std::exchange(put_outcomes_, {}));
  save_removals(pool_.now());
}

/// What is overdue ends; a link that takes no bytes for so long is closed.
void peers_backend::advance(steady_time now) {
  while (!deadlines_.empty() && deadlines_.front().first <= now) {
    const auto found = moving_.find(deadlines_.front().second);
    deadlines_.pop_front();
    if (found == moving_.end()) continue;
    const moving& what = found->second;
    if (node* const at = find_link(what.at); at != nullptr && what.now != stage::queued) {
      note(at->name, false);
      count(pool_.counters.unanswered);
    }
    if (what.now == stage::sending)
      pool_.close(what.sends_on, "the node does not take a block in time");
    else
      end(found, what.now == stage::sent ? item_result::unknown : item_result::refused);
  }
  for (auto each = questions_.begin(); each != questions_.end();) {
    const auto next = std::next(each);
    if (each->second.until <= now) answer(each);
    each = next;
  }
  std::vector<std::uint64_t> overdue;
  for (const auto& [number, each] : removals_.rounds()) {
    if (each.deadline <= now && !each.is_own_open) overdue.push_back(number);
  }
  for (const std::uint64_t each : overdue) answer_removal(each);
  for (auto& [link, each] : nodes_) {
    pump(each);
    clear_returned(each, now);
  }
  give_back_unused(now);
  repeat_removals(now);
  tell_change(now);
  wake_for_next();
}

void peers_backend::wake_for_next() {
  if (!deadlines_.empty()) pool_.wake_at(deadlines_.front().first);
  for (const auto& [number, each] : questions_) pool_.wake_at(each.until);
  for (const auto& [number, each] : removals_.rounds()) {
    if (!each.is_own_open || each.deadline > pool_.now()) pool_.wake_at(each.deadline);
  }
  pool_.wake_at(removals_.next());
  for (const auto& [link, each] : nodes_) {
    if (pool_.departures.has(each.name)) pool_.wake_at(each.clear_again);
  }
  if (tells_at_) pool_.wake_at(*tells_at_);
  const bool has_bindings = std::ranges::any_of(nodes_, [](const auto& each) { return !each.second.bindings.empty(); });
  if (has_bindings) pool_.wake_at(looks_at_bindings_);
}

}  // namespace cenote::remote
