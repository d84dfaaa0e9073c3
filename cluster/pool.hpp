// The nodes' blocks as one pool: what the network's thread hears of blocks, and says of them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cluster/counters.hpp"
#include "cluster/group_rights.hpp"
#include "cluster/recent_removals.hpp"
#include "cluster/write_offs.hpp"
#include "core/instance_identity.hpp"
#include "transport/peer/frame.hpp"
#include "transport/peer/network.hpp"

namespace cenote::cluster {

/// A node that can be asked now.
struct pool_member {
  std::string name;
  std::uint64_t weight = 0;  ///< bytes
  peer::link_id link = 0;
  bool carries_blocks = false;  ///< the link does, so that the node can be asked; it may ask before
  bool drops_sent = false;      ///< an operator cut it off, for a test
  bool drops_heard = false;
  peer::ticket key{};  ///< known to the two ends of the link alone
};
struct pool_members {
  std::string self;
  std::uint64_t weight = 0;
  peer::incarnation born{};
  std::vector<pool_member> others;
  std::vector<std::string> silent{};   ///< nodes that are suspect, or gone without a farewell
  std::vector<std::string> stopped{};  ///< nodes that announced their end
  std::vector<std::string> drained{};  ///< those of them that were drained before, or whose blocks ended with them
};

/// The numbers of an instance's last clear, nanoseconds since 1970 as a rule: known here, and carried out here.
struct clear_numbers {
  std::uint64_t heard = 0, carried_out = 0;
};
/// The clears that a node knows of. An instance without a number may have had one up to the floor.
struct clear_record {
  std::uint64_t floor = 0;
  std::map<instance_identity, clear_numbers> numbers{};  ///< by identity
};

/// Another node that removals wait for.
struct awaited_node {
  std::string name{};
  std::uint64_t removals = 0;  ///< that it has not confirmed
  bool is_here = false;        ///< it can be asked, and has not answered, or refuses
};
using awaited_nodes = std::vector<awaited_node>;

/// One of the two halves: the asker (this node wants blocks of others) and the guest (others want blocks of this one).
/// All of it is called on the network's thread.
class pool_half {
 public:
  pool_half() = default;
  pool_half(const pool_half&) = delete;
  pool_half& operator=(const pool_half&) = delete;
  virtual ~pool_half() = default;

  /// Who can be asked has changed.
  virtual void members_changed() = 0;
  virtual void heard(peer::link_id from, peer::frame_type type, std::uint64_t request,
                     std::span<const std::byte> body) = 0;
  // As in peer::network_events.
  [[nodiscard]] virtual peer::landing expects(peer::link_id from, const peer::piece_header& head,
                                              std::size_t bytes) = 0;
  virtual void landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) = 0;
  virtual void sent(peer::link_id to, std::uint64_t token, bool is_sent) = 0;
  virtual void closed(peer::link_id which) = 0;
  /// Another node knows of a clear of an instance that this one may not have heard of. `spec`: the instance's, encoded.
  virtual void learn_cleared(instance_identity /*identity*/, std::uint64_t /*number*/,
                             std::span<const std::byte> /*spec*/) {}
  /// The instance was cleared here: what others store here of it goes once more. As pool::clear_hosted().
  virtual void clear_hosted(instance_identity /*identity*/, std::function<void(std::string)> then) { then({}); }
  /// An operator's word that the node never comes back. How many removals waited for it alone, and are done now.
  /// Errors: invalid_argument (no such node, or it is here), unsupported.
  [[nodiscard]] virtual result<std::uint64_t> write_off(const std::string& /*node*/) {
    return fail(error_code::unsupported, "this node gives no blocks to others");
  }
  /// Another node knows of a write-off that this one did not know.
  virtual void take_write_off(const std::string& /*node*/) {}
  /// A node that is written off here has come back, to another node.
  virtual void take_return(const std::string& /*node*/) {}
  /// The same of keys. As pool::remove_hosted().
  virtual void remove_hosted(instance_identity /*identity*/, const std::vector<block_key>& /*keys*/,
                             std::function<void(std::string)> then) {
    then({});
  }
  /// Hands on what the last events led to.
  virtual void flush() = 0;
  virtual void advance(std::chrono::steady_clock::time_point now) = 0;
};

/// Whom a piece's token belongs to, in piece_header::what. Tokens of blocks that were asked for are even, of those that
/// were offered odd, so that `sent` tells them apart, too.
enum class piece_kind : std::uint16_t { asked = 1, offered = 2 };
[[nodiscard]] constexpr bool is_offer(std::uint64_t token) noexcept {
  return token % 2 == 1;
}

/// Counts on the network's thread what other threads read.
inline void count(std::uint64_t& what, std::uint64_t by = 1) noexcept {
  std::atomic_ref(what).store(what + by, std::memory_order_relaxed);
}

/// Joins the halves with the network. But for post() and use() all of it belongs to the network's thread.
class pool {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  /// Has advance() called on the network's thread at that time or soon after.
  using alarm_clock = std::function<void(steady_time)>;

  explicit pool(alarm_clock wakes, std::function<steady_time()> clock = std::chrono::steady_clock::now)
      : wakes_(std::move(wakes)), clock_(std::move(clock)) {}

  /// Before the network is used. Halves outlive the network's thread; either may be missing.
  void join(pool_half* asker, pool_half* guest) noexcept;
  void join_handovers(pool_half* handovers) noexcept { handovers_ = handovers; }
  [[nodiscard]] bool can_ask() const noexcept { return asker_ != nullptr; }
  void use(std::shared_ptr<peer::network> network);
  /// Runs it on the network's thread, soon; false: there is no network. Thread-safe.
  bool post(std::function<void()> what);
  /// The same; where there is no network yet, advance_early() runs it, or the network that comes. Thread-safe.
  void post_early(std::function<void()> action);
  /// While there is no network: the calling thread stands for the network's. To be called every now and then, by the
  /// thread that use() is called on.
  void advance_early();

  void take_members(pool_members now);
  [[nodiscard]] const pool_members& members() const noexcept { return members_; }
  /// A number for a node's name, for as long as the worker lives; 0: there are too many.
  [[nodiscard]] std::uint32_t number_of(const std::string& node);
  /// Empty: there is none.
  [[nodiscard]] std::string name_of(std::uint32_t number) const;
  /// None: no node that can be asked now is at the other end.
  [[nodiscard]] const pool_member* member_on(peer::link_id link) const noexcept;

  // What the network hears.
  void heard(peer::link_id from, peer::frame_type type, std::uint64_t request, std::span<const std::byte> body);
  [[nodiscard]] peer::landing expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes);
  void landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece);
  void sent(peer::link_id to, std::uint64_t token, bool is_sent);
  void closed(peer::link_id which);
  void flush();
  void advance();

  // What the halves say.
  void send(peer::link_id to, peer::frame_type type, std::uint64_t request, std::span<const std::byte> body);
  void send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory);
  void close(peer::link_id which, const std::string& why);
  void wake_at(steady_time when);
  [[nodiscard]] steady_time now() const { return clock_(); }

  /// The number of an instance's last clear, as far as this node has heard and remembers; 0: none. A later clear has a
  /// greater one, whichever node it comes from: nanoseconds since 1970.
  [[nodiscard]] std::uint64_t cleared(instance_identity identity) const noexcept;
  /// What others are told of it; less than before only after forget_cleared(). Of an instance that is not remembered
  /// the greatest number that was forgotten of those whose identities have the same remainder by most_cleared: it may
  /// have been this one's, so that who knows of less clears it once more.
  [[nodiscard]] std::uint64_t told_cleared(instance_identity identity) const noexcept;
  /// The last one that was carried out here, too: what was stored before it is gone from this node.
  [[nodiscard]] std::uint64_t carried_out(instance_identity identity) const noexcept;
  [[nodiscard]] std::uint64_t next_clear(instance_identity identity);
  /// A number that another node names, or the greatest that is believed: later clears shall have greater ones. It grows
  /// with time, faster than clears come, so that those of the others are believed after it, too.
  [[nodiscard]] static std::uint64_t credible_clear(std::uint64_t number) noexcept;
  /// The oldest of so many is forgotten.
  void note_cleared(instance_identity identity, std::uint64_t number);
  void note_carried_out(instance_identity identity);
  /// What was heard of since the last one that was carried out could not be: whoever knows of it says so again.
  void forget_cleared(instance_identity identity);
  /// Another node said so: what is here of it goes, if this node did not know. `spec`: of the instance, encoded.
  void learn_cleared(instance_identity identity, std::uint64_t number, std::span<const std::byte> spec);
  /// This node's engines cleared it, and others shall hear of it: what they stored here meanwhile goes, too. `then`
  /// gets why it may not be gone; empty: it is.
  void clear_hosted(instance_identity identity, std::function<void(std::string)> then);
  /// This node's engines removed these keys: what others store here meanwhile goes, too. `then` as of clear_hosted().
  void remove_hosted(instance_identity identity, const std::vector<block_key>& keys,
                     std::function<void(std::string)> then);

  /// As pool_half::write_off().
  [[nodiscard]] result<std::uint64_t> write_off(const std::string& node);
  void learn_write_off(const std::string& node, std::uint64_t number);
  /// The write-off with this number is over at another node.
  void learn_return(std::uint64_t number);

  static constexpr std::size_t most_cleared = 4096;  ///< instances of whose clears is known

  recent_removals removals;  ///< of this node's engines and of others
  write_offs departures;     ///< nodes that never come back
  /// Of this node's configuration, which may change. Thread-safe.
  std::atomic<std::shared_ptr<const group_rights>> rights{std::make_shared<const group_rights>()};
  /// As `rights`: instance groups of whose blocks other nodes get, store and hear nothing here.
  std::atomic<std::shared_ptr<const group_names>> kept_here{std::make_shared<const group_names>()};
  /// As `rights`: nodes that a removal waits for now, or would wait for, by name.
  std::atomic<std::shared_ptr<const awaited_nodes>> awaited_snapshot{std::make_shared<const awaited_nodes>()};
  pool_counters counters;  ///< other threads read it with copy_counters()
  [[nodiscard]] pool_counters copy_counters();

  /// Grows with each change of what clears() gives.
  [[nodiscard]] std::uint64_t clear_changes() const noexcept { return clear_changes_; }
  [[nodiscard]] clear_record clears() const;
  /// The clears that an earlier worker knew of; before the network is used. A clear that it did not carry out is not
  /// known.
  void restore_clears(const clear_record& record);

 private:
  [[nodiscard]] clear_numbers& remember_clears(instance_identity identity);
  [[nodiscard]] bool drops(peer::link_id link, bool is_sent) const noexcept;
  [[nodiscard]] bool is_closed(peer::link_id link) const noexcept;

  alarm_clock wakes_;
  std::function<steady_time()> clock_;
  std::atomic<std::shared_ptr<peer::network>> network_;
  std::mutex early_mutex_;
  std::vector<std::function<void()>> early_;  ///< since there was no network
  pool_half* asker_ = nullptr;
  pool_half* guest_ = nullptr;
  pool_half* handovers_ = nullptr;
  std::vector<std::string> names_;  ///< by number, from 1 on
  pool_members members_;
  std::deque<peer::link_id> closed_;  ///< the last ones: what was on its way here when they closed still names them
  steady_time wakes_at_ = steady_time::max();
  std::map<instance_identity, clear_numbers> cleared_;  ///< by identity
  std::uint64_t clear_changes_ = 0;
  /// The greatest number of those that are not remembered, by the identity's remainder.
  std::array<std::uint64_t, most_cleared> forgotten_{};
};

}  // namespace cenote::cluster
