// The interface of every eviction (replacement) policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "tiers/eviction/auto_status.hpp"
#include "tiers/eviction/block_list.hpp"

namespace cenote::eviction {

class session_turns;

/// What a request asks for, told to a policy before any of its blocks. Ids are 64-bit hashes of block keys.
struct request {
  std::span<const std::uint64_t> ids;  ///< all blocks, head to tail
  /// The leading blocks that are here, head to tail. Some may be in the care of the caller, and not admitted.
  std::span<const std::uint32_t> resident;
  bool partial = false;  ///< the last block is not full of tokens
  /// Where `ids` is a sample of the request's blocks: all of them. Else nothing.
  std::span<const std::uint64_t> whole{};
  /// The same where the caller follows the sessions of all requests, of which this is the latest one. It stays.
  const session_turns* turns = nullptr;

  [[nodiscard]] std::size_t full() const noexcept { return ids.size() - (partial ? 1 : 0); }
};

/// The order in which a policy wants a request's blocks, where a caller is free to choose. To be asked for after
/// begin_request().
enum class touch_order : std::uint8_t {
  any,         ///< the caller's choice
  tail_first,  ///< hits tail to head, missing blocks tail to head, then the hits that are still here, refreshed
  chain,       ///< hits tail to head, missing blocks head to tail, then all that is here tail to head, refreshed
};

/// Whether blocks that are not full of tokens come in. They serve only a request that repeats another one whole.
enum class partial_blocks : std::uint8_t { refused, admitted };

/// Orders the blocks of one pool. A plain object: no thread, no clock. All calls are O(1), some of them over many
/// calls. Not thread-safe. Callers touch a request's blocks from its tail to its head, so that a parent is never older
/// than its child.
///
/// A block has a number, which is the caller's, small, and used again for other blocks; and an identity, which is the
/// same each time the block comes. Time is in tenths of a second and never goes back.
class policy {
 public:
  policy() = default;
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  virtual ~policy() = default;

  /// How many blocks the pool can hold: shares of queues and bounds of ghosts follow it. Until this is called, it is
  /// the largest number of blocks that the pool has held.
  virtual void resize(std::uint32_t /*capacity*/) {}
  /// A request begins; until the next one, blocks that are touched or inserted are its blocks. Optional: a caller that
  /// does not know of requests leaves it out. Returns the request's context, for resume_request().
  virtual std::uint32_t begin_request(const request& /*of*/, std::uint32_t /*now*/) { return 0; }
  /// The request that begin_request() gave this context goes on: blocks are its blocks again, and what is inserted next
  /// follows `parent` (nothing: unknown, or not here any more).
  virtual void resume_request(std::uint32_t /*request_context*/, std::optional<std::uint32_t> /*parent*/) {}
  /// Whether begin_request() and resume_request() mean anything to it; a caller may leave them out if not.
  [[nodiscard]] virtual bool follows_requests() const noexcept { return false; }
  /// Whether sessions were seen to go on of late, by a policy that makes something of it.
  [[nodiscard]] virtual bool sees_sessions() const noexcept { return false; }
  [[nodiscard]] virtual touch_order order() const noexcept { return touch_order::any; }

  /// Admission: a missing block is to be inserted next, and no room was made for it yet, so what its ghost says counts
  /// for victim(). False: do not insert it. Optional, as insert() looks the ghost up if this was not called.
  [[nodiscard]] virtual bool should_admit(std::uint64_t /*id*/, std::uint32_t /*now*/) { return true; }
  /// `block` became evictable.
  virtual void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) = 0;
  /// `block` comes from another policy of the same pool, where it was used `uses` times, its insertion included, at
  /// last at `then`. It is older than all blocks that are here. No use, and no part of a request. Without its identity:
  /// a block that is held has no ghost. For policies that `auto` puts to work; another one takes it as new.
  virtual void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t /*uses*/) {
    insert(block, 0, then);
  }
  /// `block`, inserted before, was used.
  virtual void touch(std::uint32_t block, std::uint32_t now) = 0;
  /// `block` takes the position that a use would give it now, but this is no use of its own.
  virtual void refresh(std::uint32_t /*block*/, std::uint32_t /*now*/) {}
  /// `block` is the victim but cannot be evicted now: the next victim shall be another one, if there is one.
  virtual void skip_victim(std::uint32_t block, std::uint32_t now) { touch(block, now); }
  /// `block` was evicted to make room; it may leave a ghost.
  virtual void evict(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) { forget(block); }
  /// `block` is gone for another reason than room; no ghost.
  virtual void forget(std::uint32_t block) = 0;
  /// The block to evict next; it stays until evict() or forget(). Nothing when empty. Asked again with nothing
  /// in between, the answer is the same.
  [[nodiscard]] virtual std::optional<std::uint32_t> victim() = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
  /// Identities remembered of blocks that are gone; bounded by a small multiple of the capacity.
  [[nodiscard]] virtual std::size_t ghosts() const noexcept { return 0; }
  /// It is told of one use in `thinning` alone: a time that it counts in uses is that much shorter.
  virtual void thin(std::uint32_t /*thinning*/) {}
  /// What it does, where it chooses among policies itself.
  [[nodiscard]] virtual std::optional<auto_status> choosing() const { return std::nullopt; }
};

/// The names of all policies (tiers/eviction/registry.hpp).
[[nodiscard]] std::span<const std::string_view> policy_names() noexcept;

/// The policy called `name`; unknown names are refused with the known ones. `links` must outlive it.
[[nodiscard]] result<std::unique_ptr<policy>> make_policy(std::string_view name, block_links& links);

}  // namespace cenote::eviction
