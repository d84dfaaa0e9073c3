#include "tests/support/fake_network.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::testing {

namespace {

// Of all networks: numbers are never used again, whoever has them.
peer::link_id next_link() {
  static peer::link_id last = 0;
  return ++last;
}

}  // namespace

// ---- the wire

void fake_wire::at(time_point when, std::function<void()> what, const std::string& node) {
  events_.push({std::max(when, now_), ++order_, node, std::move(what)});
}

bool fake_wire::step() {
  if (events_.empty()) return false;
  event next = events_.top();
  events_.pop();
  now_ = std::max(now_, next.when);
  const auto thaw = next.node.empty() ? now_ : frozen_until(next.node);
  if (thaw > now_) {
    next.when = thaw;  // in its old order among those that wait
    events_.push(std::move(next));
  } else {
    next.what();
  }
  return true;
}

void fake_wire::run_until(time_point when) {
  while (!events_.empty() && events_.top().when <= when) step();
  now_ = std::max(now_, when);
}

fake_wire::time_point fake_wire::frozen_until(const std::string& node) const {
  const auto found = frozen_.find(node);
  return found == frozen_.end() ? time_point{} : found->second;
}

fake_wire::duration fake_wire::delay() {
  std::lognormal_distribution<double> spread(0.0, 1.0);
  return habit.least + std::chrono::duration_cast<duration>(habit.spread * spread(random_));
}

fake_network* fake_wire::find(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

void fake_wire::crash(const std::string& node, bool says_so) {
  for (const auto& [address, each] : by_address_) {
    if (each->node_ != node) continue;
    if (!says_so) each->links_.clear();
    each->stop();
    return;
  }
}

// ---- a network

fake_network::fake_network(fake_wire& wire, std::string node, endpoint where, peer::network_events events)
    : wire_(wire), node_(std::move(node)), where_(std::move(where)), events_(std::move(events)) {
  wire_.by_address_[address()] = this;
}

void fake_network::look_up(const endpoint& name) {
  wire_.at(
      wire_.now() + wire_.delay(),
      [this, alive = alive_, name] {
        if (!*alive || !events_.addresses) return;
        const auto found = wire_.names.find(name.text());
        const bool is_known = found != wire_.names.end();
        events_.addresses(name, is_known ? result<std::vector<endpoint>>(found->second)
                                         : fail(error_code::system, "look up " + name.host + ": not known"));
      },
      node_);
}

peer::link_id fake_network::dial(const endpoint& where) {
  const peer::link_id which = next_link();
  links_[which].other = where.text();
  wire_.at(wire_.now() + wire_.delay(),
           [this, alive = alive_, which, to = where.text()] {
             if (!*alive || !links_.contains(which)) return;
             fake_network* const other = wire_.find(to);
             if (other == nullptr) return ended(which, error(error_code::closed, "nobody answers there"));
             // On a network that is cut nothing comes back; the dialler waits.
             if (!wire_.is_cut(node_, other->node_) && !wire_.is_cut(other->node_, node_))
               other->accept(which, address());
           },
           {});
  return which;
}

/// The kernel answers a dial, also for a process that stands still.
void fake_network::accept(peer::link_id from, const std::string& other) {
  const peer::link_id which = next_link();
  links_[which].other = other;
  links_[which].there = from;
  const auto when = wire_.now() + wire_.delay();
  if (fake_network* const dialler = wire_.find(other)) {
    dialler->opened(from, which);
    dialler->links_[from].last = when;  // its frames come after this end has heard of the link
  }
  wire_.at(
      when,
      [this, alive = alive_, which] {
        if (*alive && links_.contains(which)) events_.opened(which, false, {});
      },
      node_);
}

void fake_network::opened(peer::link_id which, peer::link_id there) {
  links_[which].there = there;
  wire_.at(
      wire_.now() + wire_.delay(),
      [this, alive = alive_, which] {
        if (*alive && links_.contains(which)) events_.opened(which, true, {});
      },
      node_);
}

void fake_network::send(peer::link_id to, std::vector<std::byte> frame) {
  const auto found = links_.find(to);
  if (found == links_.end() || found->second.there == 0) return;
  fake_network* const other = wire_.find(found->second.other);
  if (other == nullptr || wire_.is_cut(node_, other->node_) || wire_.chance() < wire_.habit.loses) return;
  if (!other->links_.contains(found->second.there)) {  // another process has the address: its kernel knows no such link
    wire_.at(wire_.now() + wire_.delay(), [this, alive = alive_, to] {
      if (*alive) ended(to, error(error_code::closed, "the other side closed the connection"));
    });
    return;
  }
  const bool swaps = wire_.chance() < wire_.habit.swaps;
  auto when = wire_.now() + wire_.delay();
  if (!swaps) when = found->second.last = std::max(when, found->second.last + std::chrono::nanoseconds(1));
  const int copies = wire_.chance() < wire_.habit.doubles ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    wire_.at(
        when + i * wire_.habit.least,
        [other, alive = other->alive_, there = found->second.there, frame] {
          if (*alive) other->deliver(there, frame);
        },
        other->node_);
  }
}

void fake_network::deliver(peer::link_id which, const std::vector<std::byte>& frame) {
  if (links_.contains(which)) events_.heard(which, frame);
}

void fake_network::join_blocks(peer::link_id which, const endpoint&, const peer::ticket& proof) {
  if (const auto found = links_.find(which); found != links_.end()) found->second.joins = proof;
  carry(which);
}

void fake_network::await_blocks(peer::link_id which, const peer::ticket& proof) {
  if (const auto found = links_.find(which); found != links_.end()) found->second.awaits = proof;
  carry(which);
}

/// Both ends have said their tickets, and they are one.
void fake_network::carry(peer::link_id which) {
  const auto found = links_.find(which);
  fake_network* const other = found == links_.end() ? nullptr : wire_.find(found->second.other);
  const auto there = other == nullptr ? links_.end() : other->links_.find(found->second.there);
  if (other == nullptr || there == other->links_.end()) return;
  end& mine = found->second;
  end& theirs = there->second;
  const bool is_agreed = (mine.joins && mine.joins == theirs.awaits) || (mine.awaits && mine.awaits == theirs.joins);
  if (!is_agreed || mine.carries) return;
  mine.carries = theirs.carries = true;
  if (events_.carries_blocks) events_.carries_blocks(which);
  if (other->events_.carries_blocks) other->events_.carries_blocks(found->second.there);
}

void fake_network::send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) {
  const auto found = links_.find(to);
  fake_network* const other = found == links_.end() ? nullptr : wire_.find(found->second.other);
  const bool arrives = other != nullptr && found->second.carries && !wire_.is_cut(node_, other->node_);
  peer::piece_header whole = head;
  whole.total = memory.size();
  wire_.at(
      wire_.now() + wire_.delay(),
      [this, alive = alive_, arrives, other, others = arrives ? other->alive_ : nullptr,
       there = arrives ? found->second.there : 0, whole, memory, to] {
        if (!*alive) return;
        if (arrives && *others && other->links_.contains(there)) {
          const peer::landing into = other->events_.expects(there, whole, memory.size());
          if (into.place.size() == memory.size()) {
            if (into.sum != nullptr) into.sum->add(memory);
            std::ranges::copy(memory, into.place.begin());
            other->events_.landed(there, whole, into.place);
          }
        }
        events_.sent(to, whole.token, arrives ? result<void>() : fail(error_code::closed, "it was lost"));
      },
      node_);
}

void fake_network::run(std::function<void()> what) {
  wire_.at(
      wire_.now(),
      [alive = alive_, what = std::move(what)] {
        if (*alive) what();
      },
      node_);
}

void fake_network::close(peer::link_id which, error why) {
  const auto found = links_.find(which);
  if (found == links_.end()) return;
  const end gone = found->second;
  ended(which, why);
  fake_network* const other = wire_.find(gone.other);
  if (other == nullptr || gone.there == 0 || wire_.is_cut(node_, other->node_)) return;
  wire_.at(
      std::max(wire_.now() + wire_.delay(), gone.last),
      [other, alive = other->alive_, there = gone.there] {
        if (*alive) other->ended(there, error(error_code::closed, "the other side closed the connection"));
      },
      other->node_);
}

void fake_network::ended(peer::link_id which, const error& why) {
  if (links_.erase(which) == 0) return;
  wire_.at(
      wire_.now(),
      [this, alive = alive_, which, why] {
        if (*alive) events_.closed(which, why);
      },
      node_);
}

void fake_network::stop() noexcept {
  if (!*alive_) return;
  auto open = links_;
  for (const auto& [which, each] : open) close(which, error(error_code::closed, "it stops"));
  *alive_ = false;
  wire_.by_address_.erase(address());
}

}  // namespace cenote::testing
