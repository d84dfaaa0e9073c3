// TBLRU, turn-bonus LRU: conversations that went on before are likely to go on again (docs/policies.md).
#pragma once

#include <array>

#include "tiers/eviction/policy.hpp"
#include "tiers/eviction/session_turns.hpp"

namespace cenote::eviction {

/// An LRU list for each class 0..3; the class of a request's blocks is min(turn, 4) - 1, with the turns of
/// session_turns. A block that was followed by different ones while it was here is where requests branch.
///
/// A class is worth a bonus B of time: the victim is the end of the list with the smallest last use + B * class. B is
/// the running median of how long sessions take until they go on. A hit raises the class of a block and never lowers
/// it, so a parent does not go before its child. Not admitted are partial tail blocks, unless they shall be, and what a
/// first turn still has to insert once the victim is younger than 0.75 B, if at least four of the latest 64 requests
/// went on from a session: where none does, the latest prompt is as good as any. Where time stands still, requests are
/// counted instead. Without begin_request() it is an LRU.
class tblru final : public policy {
 public:
  explicit tblru(block_links& links, partial_blocks partial = partial_blocks::refused) noexcept;

  void resize(std::uint32_t capacity) override { capacity_ = capacity; }
  /// The request's context is its turn.
  std::uint32_t begin_request(const request& request, std::uint32_t time) override;
  void resume_request(std::uint32_t request_context, std::optional<std::uint32_t> parent) override;
  [[nodiscard]] bool follows_requests() const noexcept override { return true; }
  [[nodiscard]] bool sees_sessions() const noexcept override;
  [[nodiscard]] touch_order order() const noexcept override { return touch_order::chain; }
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  /// Imports what another instance has learned from a sample of the same requests. Without its ghosts: they would admit
  /// some blocks of a chain and not the others. To be called while empty.
  void import_history(const tblru& predecessor);
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t ghosts() const noexcept override { return own_turns_.tips(); }

 private:
  static constexpr std::size_t class_count = 4;
  static constexpr std::uint32_t none = block_list::none;

  static constexpr unsigned child_bits = 27;

  struct state {
    std::uint32_t touched = 0;
    std::uint32_t child : child_bits = 0;  ///< child_of() the block that came after it; 0: none did
    std::uint32_t rank : 2 = 0;            ///< the class of its list
    std::uint32_t earned : 2 = 0;          ///< the class that its uses gave it; lower where it was spared
    std::uint32_t branches : 1 = 0;        ///< another block came after it, too
  };
  static_assert(sizeof(state) == 8);

  [[nodiscard]] std::uint32_t turn_of(const request& request, std::uint32_t time);
  [[nodiscard]] bool branches(const request& request, std::size_t position) const noexcept;
  [[nodiscard]] static std::uint32_t child_of(std::uint64_t id) noexcept;
  void note_child(std::uint32_t parent, std::uint64_t id);
  void place(std::uint32_t block, std::uint32_t rank, std::uint32_t now);

  partial_blocks admits_partial_;
  std::array<block_list, class_count> lists_;
  per_block<state> states_;
  session_turns own_turns_;
  const session_turns* turns_ = &own_turns_;  ///< or those of the requests that it sees a sample of
  std::uint32_t capacity_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t chosen_ = none;  ///< the victim, until a list changes
  /// The oldest block of a class, as far as it was looked at.
  struct end {
    std::uint32_t block = none;
    std::uint32_t touched = 0;
  };
  std::array<end, class_count> ends_;
  // The present request.
  std::uint8_t rank_ = 0;
  std::uint32_t parent_ = none;  ///< of the block to be admitted next
  bool chain_ = false;           ///< there is one
  bool first_turn_ = false;
  bool stopped_ = false;  ///< it inserts nothing any more
  std::optional<std::uint64_t> partial_;
};

}  // namespace cenote::eviction
