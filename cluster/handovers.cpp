#include "cluster/handovers.hpp"

#include <algorithm>
#include <memory>

#include "transport/peer/handover_messages.hpp"

namespace cenote::cluster {

namespace {

using peer::frame_type;

constexpr std::chrono::hours longest{1};

std::uint32_t ms_of(std::chrono::nanoseconds time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return static_cast<std::uint32_t>(std::max<std::int64_t>(ms, 0) + 1);
}

}  // namespace

// ---------------------------------------------------------------------------------------------- this node's orders

void handovers::follow(handover::order what) {
  const std::uint64_t number = what.number;
  const bool ends = what.ends;
  const auto kept = std::make_shared<handover::order>(std::move(what));
  const bool is_posted = pool_.post([this, kept] { kept->ends ? end(kept->number) : begin(std::move(*kept)); });
  if (!is_posted && !ends && to_.told) to_.told({.number = number, .is_over = true, .code = error_code::closed});
}

void handovers::begin(handover::order what) {
  const std::uint64_t number = what.number;
  const bool is_here = what.node.empty() || what.node == pool_.members().self;
  if (!is_here && !pool_.can_ask()) {
    if (to_.told) to_.told({.number = number, .is_over = true, .code = error_code::unsupported});
    return;
  }
  what.patience = std::min<std::chrono::nanoseconds>(what.patience, longest);
  const auto until = pool_.now() + what.patience;
  outgoing& made = outgoing_.insert_or_assign(number, outgoing{.what = std::move(what), .until = until}).first->second;
  pool_.wake_at(until);
  count(pool_.counters.follows);
  if (!is_here) return send(made);
  made.here = next_number_;
  ask_tier({.link = 0, .number = number, .until = until}, made.what);
}

/// If the node can give blocks, and has not been told on this link.
void handovers::send(outgoing& what) {
  const auto& others = pool_.members().others;
  const auto found = std::ranges::find_if(
      others, [&](const pool_member& each) { return each.name == what.what.node && each.carries_blocks; });
  if (found != others.end() && found->link == what.link) return;
  what.link = found == others.end() ? 0 : found->link;  // what was said to a node that was away may be lost
  if (what.link == 0) return;
  pool_.send(what.link, frame_type::follow, what.what.number,
             peer::encode(peer::follow_request{.request = what.what.request,
                                               .position = what.what.position,
                                               .patience_ms = ms_of(what.until - pool_.now())}));
}

void handovers::end(std::uint64_t number) {
  const auto found = outgoing_.find(number);
  if (found == outgoing_.end()) return;
  if (found->second.here != 0) {
    if (const auto here = asking_.find(found->second.here); here != asking_.end()) forget(here);
  } else if (found->second.link != 0) {
    pool_.send(found->second.link, frame_type::unfollow, number, {});
  }
  outgoing_.erase(found);
}

void handovers::deliver(handover::news what) {
  const auto found = outgoing_.find(what.number);
  if (found == outgoing_.end()) return;
  found->second.what.position += what.keys.size();  // where it goes on, should the link be lost
  if (what.is_over) outgoing_.erase(found);
  if (to_.told) to_.told(std::move(what));
}

void handovers::hear_handed(peer::link_id from, std::uint64_t number, std::span<const std::byte> body) {
  auto handed = peer::decode_handed_keys(body);
  if (!handed) {
    count(pool_.counters.refused);
    return pool_.close(from, "a node sent " + handed.error().message());
  }
  const auto found = outgoing_.find(number);
  if (found == outgoing_.end() || found->second.link != from || handed->first != found->second.what.position) return;
  deliver({.number = number,
           .first = handed->first,
           .keys = std::move(handed->keys),
           .is_over = handed->is_over,
           .code = handed->code,
           .from = pool_.number_of(found->second.what.node)});
}

// ---------------------------------------------------------------------------------------------- others' orders

void handovers::ask_tier(const asking& by, handover::order what) {
  const std::uint64_t number = next_number_++;
  asking_.emplace(number, by);
  if (by.link != 0) by_place_[{by.link, by.number}] = number;
  what.number = number;
  if (to_.asked) to_.asked(std::move(what));
}

/// The block tier forgets it, too.
void handovers::forget(std::map<std::uint64_t, asking>::iterator which) {
  by_place_.erase({which->second.link, which->second.number});
  if (to_.asked) to_.asked({.number = which->first, .ends = true});
  asking_.erase(which);
}

void handovers::hear_follow(peer::link_id from, std::uint64_t number, std::span<const std::byte> body) {
  auto wanted = peer::decode_follow_request(body);
  if (!wanted) {
    count(pool_.counters.refused);
    return pool_.close(from, "a node sent " + wanted.error().message());
  }
  if (const auto before = by_place_.find({from, number}); before != by_place_.end())
    forget(asking_.find(before->second));
  const auto first = by_place_.lower_bound({from, 0});
  const auto last = by_place_.lower_bound({from + 1, 0});
  if (static_cast<std::size_t>(std::distance(first, last)) >= most_of_link) {
    count(pool_.counters.refused);
    return pool_.send(from, frame_type::handed, number,
                      peer::encode(peer::handed_keys{
                          .first = wanted->position, .is_over = true, .code = error_code::limit_exceeded}));
  }
  const auto patience = std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(wanted->patience_ms), longest);
  const auto until = pool_.now() + patience;
  pool_.wake_at(until);
  count(pool_.counters.followed);
  const pool_member* const asker = pool_.member_on(from);
  ask_tier({.link = from, .number = number, .until = until},
           {.request = std::move(wanted->request),
            .position = wanted->position,
            .patience = patience,
            .holder = {.uid = share_holder::other_node, .group = asker != nullptr ? asker->name : std::string()}});
}

void handovers::take(std::vector<handover::news> all) {
  const auto kept = std::make_shared<std::vector<handover::news>>(std::move(all));
  (void)pool_.post([this, kept] {
    for (handover::news& each : *kept) {
      const auto found = asking_.find(each.number);
      if (found == asking_.end()) continue;
      const asking by = found->second;
      if (by.link != 0 && pool_.kept_here.load()->contains(each.payer)) continue;  // as if nobody had published it
      if (each.is_over) {
        by_place_.erase({by.link, by.number});
        asking_.erase(found);
      }
      if (by.link == 0) {
        each.number = by.number;
        deliver(std::move(each));
        continue;
      }
      count(pool_.counters.handed, each.keys.size());
      pool_.send(by.link, frame_type::handed, by.number,
                 peer::encode(peer::handed_keys{
                     .first = each.first, .is_over = each.is_over, .keys = std::move(each.keys), .code = each.code}));
    }
  });
}

// ---------------------------------------------------------------------------------------------- events

void handovers::heard(peer::link_id from, frame_type type, std::uint64_t request, std::span<const std::byte> body) {
  if (type == frame_type::follow) return hear_follow(from, request, body);
  if (type == frame_type::handed) return hear_handed(from, request, body);
  const auto found = by_place_.find({from, request});
  if (found != by_place_.end()) forget(asking_.find(found->second));
}

void handovers::members_changed() {
  for (auto& [number, each] : outgoing_) {
    if (each.here == 0) send(each);
  }
}

void handovers::closed(peer::link_id which) {
  for (auto& [number, each] : outgoing_) {
    if (each.link == which) each.link = 0;  // sent again when its node is back
  }
  for (auto each = by_place_.lower_bound({which, 0}); each != by_place_.end() && each->first.first == which;
       each = by_place_.lower_bound({which, 0}))
    forget(asking_.find(each->second));
}

void handovers::advance(std::chrono::steady_clock::time_point now) {
  auto next = pool::steady_time::max();
  for (auto each = outgoing_.begin(); each != outgoing_.end();) {
    const auto after = std::next(each);
    if (each->second.until <= now)
      end(each->first);
    else
      next = std::min(next, each->second.until);
    each = after;
  }
  for (auto each = asking_.begin(); each != asking_.end();) {
    const auto after = std::next(each);
    if (each->second.until <= now)
      forget(each);
    else
      next = std::min(next, each->second.until);
    each = after;
  }
  if (next != pool::steady_time::max()) pool_.wake_at(next);
}

}  // namespace cenote::cluster
