#include "simulation/pool_simulation.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "cluster/placement.hpp"
#include "core/checksum.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::simulation {

namespace {

constexpr std::size_t routing_blocks = 2;

/// A node's memory: all blocks in the order of its policy, and copies by their last use as well, as
/// blocks::bounded_order has it. Both know a block by its place.
class pool_node {
 public:
  result<void> open(const trace& trace, const node_pool& options) {
    identities_ = trace.identities();
    capacity_ = options.capacity;
    most_copies_ = options.copies.value_or(1) * options.capacity;
    links_.cover(std::min(trace.distinct(), options.capacity));
    copy_links_.cover(std::min(trace.distinct(), options.capacity));
    auto made = eviction::make_policy(options.policy, links_);
    if (!made) return std::unexpected(made.error());
    policy_ = std::move(*made);
    policy_->resize(options.capacity);
    return {};
  }

  [[nodiscard]] eviction::touch_order order() const noexcept { return policy_->order(); }
  [[nodiscard]] bool holds(std::uint32_t block) const { return places_.contains(block); }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return inserts_; }
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }

  /// `identities`: of all blocks.
  void begin_request(std::span<const std::uint32_t> blocks, std::span<const std::uint64_t> identities, bool partial,
                     std::uint32_t now) {
    ids_.clear();
    for (const std::uint32_t block : blocks) ids_.push_back(identities[block]);
    resident_.clear();
    for (const std::uint32_t block : blocks) {
      const auto found = places_.find(block);
      if (found == places_.end()) break;
      resident_.push_back(found->second);
    }
    policy_->begin_request({.ids = ids_, .resident = resident_, .partial = partial}, now);
  }
  void touch(std::uint32_t block, std::uint32_t now) {
    hold(block);
    policy_->touch(places_.at(block), now);
  }
  void refresh(std::uint32_t block, std::uint32_t now) {
    hold(block);
    policy_->refresh(places_.at(block), now);
  }
  /// A copy becomes the latest of them: so the oldest one is held only if all are.
  void hold(std::uint32_t block) {
    if (const std::uint32_t place = places_.at(block); slots_[place].is_copy) copies_.move_to_front(place);
  }
  /// Inserts a block that the policy admits, or any if `is_forced`. Blocks that are held go only where nothing else
  /// can.
  template <class Predicate>
  void insert(std::uint32_t block, bool is_copy, bool is_forced, std::uint32_t now, Predicate&& is_held) {
    if (capacity_ == 0) return;
    if (!policy_->should_admit(identities_[block], now) && !is_forced) return;
    if (places_.size() == capacity_) evict(next_victim(now, is_held), now);
    const std::uint32_t place = take_place({block, is_copy});
    places_.emplace(block, place);
    policy_->insert(place, identities_[block], now);
    if (is_copy) copies_.push_front(place);
    ++inserts_;
  }

 private:
  struct slot {
    std::uint32_t block = 0;
    bool is_copy = false;
  };

  template <class Predicate>
  std::uint32_t next_victim(std::uint32_t now, Predicate& is_held) {
    if (copies_.size() > most_copies_ && !is_held(slots_[copies_.back()].block)) return copies_.back();
    for (std::uint32_t looks = policy_->size(); looks > 0; --looks) {
      const std::uint32_t place = *policy_->victim();
      if (!is_held(slots_[place].block)) return place;
      policy_->skip_victim(place, now);
    }
    return *policy_->victim();
  }
  void evict(std::uint32_t place, std::uint32_t now) {
    policy_->evict(place, identities_[slots_[place].block], now);
    if (slots_[place].is_copy) copies_.remove(place);
    places_.erase(slots_[place].block);
    free_.push_back(place);
    ++evictions_;
  }
  std::uint32_t take_place(slot content) {
    if (free_.empty()) {
      slots_.push_back(content);
      return static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    slots_[place] = content;
    return place;
  }

  std::span<const std::uint64_t> identities_;
  std::uint32_t capacity_ = 0;
  double most_copies_ = 0;
  eviction::block_links links_;
  std::unique_ptr<eviction::policy> policy_;
  eviction::block_links copy_links_;
  eviction::block_list copies_{copy_links_};  ///< the latest one in front
  std::unordered_map<std::uint32_t, std::uint32_t> places_;
  std::vector<slot> slots_;          ///< by place
  std::vector<std::uint32_t> free_;  ///< places
  std::vector<std::uint32_t> resident_;
  std::vector<std::uint64_t> ids_;  ///< of the request
  std::uint64_t inserts_ = 0;
  std::uint64_t evictions_ = 0;
};

/// All nodes while one of them serves a request.
class serving_pool {
 public:
  serving_pool(const trace& trace, std::deque<pool_node>& nodes, std::span<const std::uint32_t> homes)
      : trace_(trace),
        nodes_(nodes),
        homes_(homes),
        forces_inserts_(nodes.size() > 1),
        held_for_(trace.distinct()),
        position_(trace.distinct()) {}

  void serve(const trace::entry& request, std::uint32_t node, replay_order order) {
    local_ = node;
    now_ = request.tenths();
    ++request_;
    const auto blocks = trace_.blocks(request);
    for (std::uint32_t i = 0; i < blocks.size(); ++i) position_[blocks[i]] = i;
    const std::size_t lead = count_hits(blocks, request.tokens);
    count_locates(blocks);
    fetch(blocks.first(lead));
    local_node().begin_request(blocks, trace_.identities(), request.partial, now_);
    selected_.clear();
    use_request(*this, blocks, lead, order == replay_order::reverse, local_node().order());
    offer();
  }
  [[nodiscard]] pool_sums take_sums() {
    for (const pool_node& each : nodes_) {
      sums_.all.inserts += each.inserts();
      sums_.all.evictions += each.evictions();
    }
    return sums_;
  }

  // The operations that use_request() needs.
  [[nodiscard]] bool holds(std::uint32_t block) { return local_node().holds(block); }
  void refresh(std::uint32_t block) { local_node().refresh(block, now_); }
  void use(std::uint32_t block) {
    if (local_node().holds(block)) {
      local_node().touch(block, now_);
      ++sums_.all.stream_hits;
      return;
    }
    const bool copy = homes_[block] != local_;
    local_node().insert(block, copy, forces_inserts_, now_, nothing_held);
    if (copy) selected_.push_back(block);
  }

 private:
  static bool nothing_held(std::uint32_t /*block*/) { return false; }

  pool_node& local_node() { return nodes_[local_]; }
  pool_node& home(std::uint32_t block) { return nodes_[homes_[block]]; }

  /// Counts the blocks that lead the request and are on its node or at home.
  std::size_t count_hits(std::span<const std::uint32_t> blocks, std::uint64_t tokens) {
    std::size_t local = 0;
    while (local < blocks.size() && local_node().holds(blocks[local])) ++local;
    std::size_t lead = local;
    while (lead < blocks.size() && (local_node().holds(blocks[lead]) || home(blocks[lead]).holds(blocks[lead]))) ++lead;
    sums_.local_hits += local;
    sums_.local_tokens += std::min(local * trace_.block_tokens(), tokens);
    sums_.all.prefix_hits += lead;
    sums_.all.prefix_tokens += std::min(lead * trace_.block_tokens(), tokens);
    return lead;
  }
  /// Counts a message to each home of blocks that the request's node lacks: only the homes know which they have.
  void count_locates(std::span<const std::uint32_t> blocks) {
    selected_.clear();
    for (const std::uint32_t block : blocks) {
      if (!local_node().holds(block) && homes_[block] != local_) selected_.push_back(block);
    }
    for_each_home([&](auto&&...) { ++sums_.locates; });
  }
  /// Copies the leading blocks to the request's node; those that it has stay meanwhile. At their homes that is a use.
  void fetch(std::span<const std::uint32_t> leading) {
    selected_.clear();
    for (const std::uint32_t block : leading) {
      held_for_[block] = request_;
      if (!local_node().holds(block)) {
        selected_.push_back(block);
      } else {
        local_node().hold(block);
      }
    }
    sums_.fetched += selected_.size();
    const auto is_held = [&](std::uint32_t block) { return held_for_[block] == request_; };
    for (const std::uint32_t block : selected_) local_node().insert(block, true, true, now_, is_held);
    for_each_home([&](pool_node& owner, std::span<const std::uint32_t> blocks) {
      ++sums_.fetches;
      begin_at(owner, blocks);
      for (const std::uint32_t block : blocks | std::views::reverse) owner.touch(block, now_);
    });
  }
  /// Offers computed blocks to their homes.
  void offer() {
    for_each_home([&](pool_node& owner, std::span<const std::uint32_t> blocks) {
      ++sums_.offers;
      begin_at(owner, blocks);
      const auto take = [&](std::uint32_t block) {
        if (owner.holds(block)) return;
        owner.insert(block, false, forces_inserts_, now_, nothing_held);
        ++sums_.accepted;
      };
      if (owner.order() == eviction::touch_order::chain) {
        std::ranges::for_each(blocks, take);
      } else {
        std::ranges::for_each(blocks | std::views::reverse, take);
      }
    });
  }
  /// Calls `visit` with each home of `selected_` and the blocks that belong there, head to tail.
  template <class Visitor>
  void for_each_home(Visitor&& visit) {
    std::ranges::sort(selected_, {}, [&](std::uint32_t block) { return std::pair(homes_[block], position_[block]); });
    for (auto first = selected_.begin(); first != selected_.end();) {
      const auto last =
          std::find_if(first, selected_.end(), [&](auto block) { return homes_[block] != homes_[*first]; });
      visit(home(*first), std::span<const std::uint32_t>(first, last));
      first = last;
    }
  }
  /// Begins a request at a home: its blocks of a request are one to it.
  void begin_at(pool_node& owner, std::span<const std::uint32_t> blocks) {
    owner.begin_request(blocks, trace_.identities(), false, now_);
  }

  const trace& trace_;
  std::deque<pool_node>& nodes_;
  std::span<const std::uint32_t> homes_;
  bool forces_inserts_;  ///< as a node with a tier below: what its policy does not admit comes in all the same
  pool_sums sums_;
  std::uint32_t local_ = 0;  ///< the request's node
  std::uint32_t now_ = 0;
  std::uint32_t request_ = 0;
  std::vector<std::uint32_t> held_for_;  ///< by block: the request that it was last a hit of, from 1
  std::vector<std::uint32_t> position_;  ///< by block: in the request that last had it
  std::vector<std::uint32_t> selected_;  ///< blocks of this request
};

}  // namespace

std::vector<std::uint32_t> homes_of(const trace& trace, std::uint32_t nodes) {
  std::vector<cluster::place> places;
  places.reserve(nodes);
  for (std::uint32_t i = 0; i < nodes; ++i) places.push_back({"node" + std::to_string(i), 1});
  const cluster::placement placement(std::move(places));
  std::vector<std::uint32_t> homes;
  homes.reserve(trace.distinct());
  for (const std::uint64_t id : trace.identities()) {
    const block_key key = reduce_key(std::as_bytes(std::span(&id, 1)), 0);
    homes.push_back(static_cast<std::uint32_t>(placement.home({}, key)));
  }
  return homes;
}

std::vector<std::uint32_t> routes_of(const trace& trace, std::uint32_t nodes, pool_route route) {
  std::vector<std::uint32_t> routes;
  routes.reserve(trace.requests().size());
  for (const trace::entry& each : trace.requests()) {
    const auto ids = trace.ids(each);
    const auto first = std::span(ids).first(std::min(ids.size(), routing_blocks));
    const std::uint64_t by =
        route == pool_route::prefix ? checksum_of(first.data(), first.size_bytes()) : routes.size();
    routes.push_back(static_cast<std::uint32_t>(by % nodes));
  }
  return routes;
}

result<pool_sums> simulate(const trace& trace, const node_pool& pool, std::span<const std::uint32_t> homes,
                           std::span<const std::uint32_t> routes, replay_order order) {
  std::deque<pool_node> nodes;  // policies point at their links
  for (std::uint32_t i = 0; i < pool.nodes; ++i) {
    if (auto ok = nodes.emplace_back().open(trace, pool); !ok) return std::unexpected(ok.error());
  }
  serving_pool serving(trace, nodes, homes);
  const auto requests = trace.requests();
  for (std::size_t i = 0; i < requests.size(); ++i) serving.serve(requests[i], routes[i], order);
  pool_sums sums = serving.take_sums();
  sums.all.blocks = trace.stream().size();
  sums.all.tokens = trace.tokens();
  return sums;
}

}  // namespace cenote::simulation
