// What other nodes do with the blocks of this one: they read them, and store theirs here. It is a session of the block
// tier for each instance, with pins and reservations of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/guest_room.hpp"
#include "cluster/pool.hpp"
#include "cluster/recent_loans.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "core/shared_bound.hpp"
#include "memory/block_record.hpp"
#include "memory/lookup.hpp"
#include "memory/session_memory.hpp"
#include "transport/peer/block_messages.hpp"

namespace cenote::cluster {

struct guest_options {
  std::uint64_t window = std::uint64_t{64} << 20;  ///< bytes on their way to or from one node
  /// Bytes of blocks that are pinned for all of them together; one block always may. A node that takes nothing keeps
  /// its blocks pinned until its link is closed.
  std::uint64_t most_lent = ~std::uint64_t{0};
  /// A key is neither served nor taken for so long after its removal: see lag_of().
  std::chrono::milliseconds removal_lag = lag_of(std::chrono::milliseconds(2000));

  /// A removal may reach its last node one time-out after this one, and what that node has begun to offer by then lives
  /// for another.
  [[nodiscard]] static constexpr std::chrono::milliseconds lag_of(std::chrono::milliseconds timeout) noexcept {
    return 2 * timeout;
  }
};

/// The pool's half that serves others. Reads look blocks up and pin them as an engine does, on the network's thread;
/// what only a tier below has is brought up first. While other nodes are sent much, blocks that another
/// node was sent lately are to be had there: so one hot prefix does not keep one node busy. A block is sent from where
/// it lies; its pin ends when it is sent. Blocks that are offered are reserved, filled as they come, and stored when
/// their checksum is right.
class guest final : public pool_half {
 public:
  static constexpr std::size_t most_instances = total_of(node_bound::guest_instances);
  static constexpr std::size_t most_opened = 2 * most_instances;  ///< those that removals opened among them
  static constexpr std::chrono::seconds fill_limit{10};           ///< for the bytes of a block that was offered
  static constexpr std::chrono::seconds fetch_limit{10};  ///< for a fetch that waits; then its blocks are `missing`
  static constexpr std::chrono::seconds clear_lag{10};    ///< so late an own clear may still be heard of

  guest(pool& to, guest_room& room, guest_options options) : pool_(to), room_(room), options_(std::move(options)) {}

  /// Who cannot be asked may ask all the same, for as long as its link is there.
  void members_changed() override {}
  void heard(peer::link_id from, peer::frame_type type, std::uint64_t request,
             std::span<const std::byte> body) override;
  [[nodiscard]] peer::landing expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes) override;
  void landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) override;
  void sent(peer::link_id to, std::uint64_t token, bool is_sent) override;
  void closed(peer::link_id which) override;
  void flush() override;
  void learn_cleared(instance_identity identity, std::uint64_t number, std::span<const std::byte> spec) override;
  void clear_hosted(instance_identity identity, std::function<void(std::string)> then) override;
  void remove_hosted(instance_identity identity, const std::vector<block_key>& keys,
                     std::function<void(std::string)> then) override;
  void advance(std::chrono::steady_clock::time_point now) override;

 private:
  using place = std::pair<peer::link_id, std::uint64_t>;  ///< link and token

  /// An instance that others use.
  struct hosted {
    std::uint32_t handle = 0;
    instance_identity identity{};
    instance_spec spec;
    guest_session_ptr session;                                       ///< null: it is being opened
    std::vector<std::pair<peer::link_id, std::uint64_t>> waiting{};  ///< requests that bind it
    std::set<peer::link_id> users{};
    bool must_clear = false;                                           ///< once it is open
    std::vector<std::function<void(std::string)>> when_cleared{};      ///< … told of that clear's end
    std::vector<std::function<void(const std::string&)>> when_open{};  ///< … or why it cannot be opened
    std::size_t clears = 0;                        ///< that are under way: nobody is told the handle before
    std::size_t removals = 0;                      ///< of keys, that are under way
    bool is_checking = false;                      ///< copies here, of which others got wrong bytes
    std::optional<pool::steady_time> stored_at{};  ///< the last time that a block came, or was let come
    std::unordered_map<std::uint32_t, memory::slab_place> slabs{};
  };
  /// A block that is being sent.
  struct loan {
    std::uint32_t handle = 0;
    std::uint32_t group = 0;
    full_key full;
    memory::pin pin;
    std::uint64_t bytes = 0;
    bool is_given = false;  ///< to the network
  };
  /// A block that is coming.
  struct delivery {
    std::uint32_t handle = 0;
    std::uint32_t group = 0;
    full_key full;
    memory::block_ref block;
    std::uint32_t grant_version = 0;
    std::span<std::byte> memory{};  ///< empty: it is not known yet where
    std::uint64_t landed = 0;
    std::shared_ptr<running_checksum> sum{};  ///< of what landed
    pool::steady_time until{};
  };
  /// A block that came whole, or will not.
  struct ended_delivery {
    place from;
    delivery what;
    std::optional<std::uint64_t> hash{};  ///< none: it is given back
  };
  /// An instance that nobody else uses any more and was stored to: perhaps after a clear of this node's own blocks, and
  /// before this side heard of that.
  struct left_instance {
    instance_identity identity{};
    instance_spec spec;
    pool::steady_time stored_at{};
  };
  /// A fetch, or the rest of one, that waits until others have been sent.
  struct queued_fetch {
    peer::block_request asked;
    bool may_bring_up = true;
    bool may_go_elsewhere = false;
    pool::steady_time until{};
  };
  /// What one link has under way.
  struct usage {
    std::uint64_t loans = 0, deliveries = 0;  ///< bytes
    std::deque<queued_fetch> fetches{};
  };

  void bind(peer::link_id from, std::uint64_t request, std::span<const std::byte> body);
  [[nodiscard]] std::optional<error> no_room_for(peer::link_id node) const;
  hosted& host(instance_identity identity, instance_spec spec);
  [[nodiscard]] hosted* host(instance_identity identity, std::span<const std::byte> spec);
  void leave(const hosted& of);
  [[nodiscard]] bool is_recent(std::optional<pool::steady_time> stored_at) const;
  [[nodiscard]] const left_instance* find_left(instance_identity identity) const;
  void run_open(hosted& instance, std::function<void(hosted&)> then,
                std::function<void(const std::string&)> on_failure);
  void unbind(peer::link_id from, std::span<const std::byte> body);
  void opened(std::uint32_t handle, result<guest_session_ptr> how);
  void refuse(peer::link_id to, std::uint64_t request, const std::string& why);
  void answer_binds(hosted& of);
  [[nodiscard]] bool stays_here(const instance_spec& spec) const;
  [[nodiscard]] hosted* find(peer::link_id user, std::uint32_t handle);
  [[nodiscard]] hosted* find_identity(instance_identity identity);
  [[nodiscard]] std::uint64_t stride_of(std::uint32_t handle, std::uint32_t group) const;

  void locate(peer::link_id from, std::uint64_t request, std::span<const std::byte> body);
  void check(peer::link_id sender, std::span<const std::byte> body);
  void fetch(peer::link_id from, std::span<const std::byte> body, bool may_go_elsewhere);
  void lend(peer::link_id to, hosted& of, queued_fetch wanted);
  [[nodiscard]] bool lacks_clear(const hosted& instance, std::optional<std::uint64_t> cleared);
  [[nodiscard]] peer::block_request pin_present(peer::link_id to, hosted& of, const queued_fetch& wanted,
                                                std::vector<place>& lent);
  [[nodiscard]] bool is_busy_with_others(peer::link_id than) const;
  void send_elsewhere(peer::link_id to, const hosted& of, queued_fetch& rest);
  [[nodiscard]] std::size_t room_for(peer::link_id to, std::uint64_t stride) const;
  void queue(peer::link_id to, queued_fetch wanted, bool is_begun);
  void answer_missing(peer::link_id to, const peer::block_request& asked);
  void serve_queues();
  [[nodiscard]] pool::steady_time end_overdue_fetches(pool::steady_time now);
  void answer_absent(peer::link_id to, hosted& of, const peer::block_request& absent, bool may_bring_up);
  void bring_up(peer::link_id to, hosted& of, peer::block_request wanted);
  void send_loans(hosted& of, std::vector<place> which);
  void send_loan(hosted& of, const place& to, loan& what);
  void end_loan(std::map<place, loan>::iterator which);
  void touch(hosted& of, std::uint32_t group, std::span<const place> lent);

  void offer(peer::link_id from, std::uint64_t request, std::span<const std::byte> body);
  void reserve(peer::link_id from, std::uint64_t request, hosted& of, peer::block_request asked,
               peer::block_answers answers);
  void reserved(peer::link_id from, std::uint64_t request, std::uint32_t handle, const peer::block_request& asked,
                peer::block_answers answers, const std::vector<memory::completion>& how);
  [[nodiscard]] bool take_reservation(const place& at, std::uint32_t handle, const peer::block_request& asked,
                                      std::size_t which, const memory::completion& how);
  void place_deliveries(std::uint32_t handle, const std::vector<place>& which, std::function<void()> then);
  void answer_stored(peer::link_id to, std::uint64_t token, peer::block_answer how);
  void store(std::uint32_t handle, std::vector<ended_delivery> all);
  void end_delivery(const place& which, std::optional<std::uint64_t> hash);

  void forget(peer::link_id from, std::uint64_t request, std::span<const std::byte> body);
  void learn_write_offs(peer::link_id sender, std::uint64_t request, std::span<const std::byte> body);
  void clear_node(peer::link_id sender, std::uint64_t request, std::uint64_t number);
  void end_clear_node(std::uint64_t number, const result<std::uint64_t>& cleared);
  [[nodiscard]] std::string right_refusal(peer::link_id node, const instance_spec& spec,
                                          const std::optional<peer::proof>& right) const;
  [[nodiscard]] bool may_forget(peer::link_id node, const hosted* instance, const peer::forget_request& request) const;
  void forget_in(hosted& instance, const peer::forget_request& request,
                 std::function<void(std::uint64_t, std::string)> answer);
  void revoke(const hosted& instance, std::span<const block_key> keys);
  void remove(hosted& of, const std::vector<block_key>& keys, std::function<void(std::uint64_t, std::string)> then);
  void clear(hosted& of, std::function<void(std::uint64_t, std::string)> then);
  void clear_unheard(hosted& of);
  static void tell_removed(const std::vector<memory::completion>& how,
                           const std::function<void(std::uint64_t, std::string)>& then);
  void find_slabs(hosted& of, std::vector<std::uint32_t> missing, std::function<void()> then);
  void misbehaves(peer::link_id who, const std::string& how);

  pool& pool_;
  guest_room& room_;
  guest_options options_;
  std::map<std::uint32_t, hosted> instances_;  ///< by handle
  std::deque<left_instance> left_;             ///< the last ones, in the order in which they were closed
  std::uint32_t next_handle_ = 1;
  std::map<place, loan> loans_;
  std::map<place, delivery> deliveries_;
  std::vector<ended_delivery> ended_;
  std::map<peer::link_id, usage> usage_;
  recent_loans borrowers_;
  std::map<std::uint64_t, std::vector<std::pair<peer::link_id, std::uint64_t>>>
      own_clears_;                                       ///< requests, by write-off
  std::uint64_t lent_ = 0;                               ///< bytes, to all
  std::map<peer::link_id, peer::block_answers> misses_;  ///< to be told with the next flush
};

}  // namespace cenote::cluster
