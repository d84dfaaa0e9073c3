// Which blocks belong to which request, in which order, and who wants to hear when each of them is whole. A plain
// object without actor or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/handover.hpp"
#include "core/shared_bound.hpp"
#include "core/time_types.hpp"
#include "tiers/blocks/types.hpp"

namespace cenote::blocks {

/// Bounds of what sessions publish: a key takes some hundred bytes here. Users and instance groups share what is of all
/// sessions together.
struct published_limits {
  std::size_t most_requests = total_of(node_bound::requests), session_requests = 1024;
  std::size_t most_keys = total_of(node_bound::request_keys), session_keys = std::size_t{1} << 17;
  std::size_t request_keys = handover::most_request_keys;
  std::size_t most_followers = total_of(node_bound::followers);
  std::size_t request_followers = 64;      ///< each of them hears of all keys
  tenths life = std::chrono::seconds(60);  ///< of a request, since its last change
};

/// What a session says of a request.
struct publication {
  session_number by = 0;
  std::uint32_t number = 0;  ///< of the request in the session's ring
  instance_number instance = 0;
  handover::request_name request{};
  std::string payer{};                   ///< the instance group
  share_holder holder{};                 ///< of the session
  std::optional<std::uint64_t> first{};  ///< place of keys[0] in the request; none: behind what it has
  std::vector<full_key> keys{};          ///< of one width
  std::vector<bool> here{};              ///< one a key: the block is whole already
  bool ends = false;                     ///< no key follows these
};

/// The requests of all instances that are here. A follower hears of the keys in order, of each when its block and all
/// before it have been whole once: what was evicted since may be below, or elsewhere. Not thread-safe.
class published {
 public:
  explicit published(published_limits limits = {})
      : limits_(limits),
        taken_requests_(node_bound::requests, limits.most_requests),
        taken_keys_(node_bound::request_keys, limits.most_keys),
        taken_followers_(node_bound::followers, limits.most_followers) {}

  /// Returns how many keys the request has now. Keys that it has already are checked, not added. Errors:
  /// limit_exceeded; invalid_argument: they are not the next ones, are others than before, or the request has ended.
  result<std::uint64_t> publish(const publication& what, boot_time now);
  /// Somebody waits for blocks of the instance.
  [[nodiscard]] bool awaits(instance_number instance) const noexcept { return awaited_.contains(instance); }
  /// A block of the instance is whole.
  void arrived(instance_number instance, const block_key& key, boot_time now);
  /// The instance was cleared or given up: its requests are no more. Who follows one and has heard of no key waits for
  /// it to be published anew; the others hear that it is closed, since it may have other keys then.
  void forget(instance_number instance);
  /// The session is over: requests that it published first end with the keys whose blocks are whole, and those that
  /// were cut short so may be published anew.
  void release(session_number by, boot_time now);

  /// Begins to follow a request, whether it is published or not, or ends that. `number` is the follower's own.
  void follow(const handover::order& what, boot_time now);
  [[nodiscard]] std::vector<handover::news> take_news() { return std::exchange(news_, {}); }
  /// Drops requests that did not change for their life, and followers whose time is over.
  void expire(boot_time now);

  [[nodiscard]] std::size_t requests() const noexcept { return lists_.size(); }
  [[nodiscard]] std::size_t keys() const noexcept { return taken_keys_.total_taken(); }
  [[nodiscard]] std::size_t followers() const noexcept { return followers_.size(); }

 private:
  struct list {
    std::uint64_t number = 0;
    session_number by = 0;  ///< pays: who published first
    instance_number instance = 0;
    std::string payer;
    share_holder holder{};  ///< of that session
    std::vector<full_key> keys{};
    std::vector<bool> here{};
    std::size_t front = 0;  ///< keys whose blocks have been whole, without a gap
    bool has_ended = false;
    bool is_cut = false;  ///< its session was over before its last block was whole
    boot_time until{};
    std::set<std::uint64_t> followers{};
  };
  using list_map = std::map<handover::request_name, list>;
  struct follower {
    handover::request_name request;
    std::uint64_t next = 0;
    boot_time until{};
    share_holder holder{};
  };
  struct usage {
    std::size_t requests = 0, keys = 0;
  };
  /// A block that is not whole yet: its key, the list's number, the place there.
  using awaited_key = std::tuple<block_key, std::uint64_t, std::size_t>;

  [[nodiscard]] result<std::size_t> check(const publication& what, const list* known) const;
  void advance(list& of, boot_time now);
  void tell(list& of);
  void let_go(list& of, const handover::request_name& name, std::size_t first);
  void drop(list_map::iterator which);
  void forget_follower(std::map<std::uint64_t, follower>::iterator position);

  published_limits limits_;
  list_map lists_;
  std::map<session_number, usage> used_;
  std::map<std::uint64_t, list*> by_number_;
  std::uint64_t next_number_ = 1;
  std::map<instance_number, std::set<awaited_key>> awaited_;  ///< none is empty
  std::map<std::uint64_t, follower> followers_;
  shared_bound taken_requests_, taken_keys_, taken_followers_;
  std::vector<handover::news> news_;
};

}  // namespace cenote::blocks
