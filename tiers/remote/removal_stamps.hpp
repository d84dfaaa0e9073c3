// A sign at a server that no other node has removed anything of an instance: without it a node offers nothing there
// that the server missed while it was away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/instance_identity.hpp"
#include "tiers/remote/steady_time.hpp"

namespace cenote::remote {

/// The removal stamps on a server, as this node knows them. The stamp of an instance is a random number beside its
/// epoch: the first node that looks makes one, an even one, and each removal begins with another one, an odd one. As
/// long as it is the same, no node has removed anything. A server that has lost its memory, as its run shows, has
/// lost removals as well: they are carried out once more by the nodes that asked for them (kept_removals), and count as
/// none here. Not thread-safe.
class removal_stamps {
 public:
  using stamp = std::uint64_t;  ///< 0: none
  /// Instances that are known at once. Of one more, all are forgotten, and nothing that was missed before is offered.
  static constexpr std::size_t most_instances = 4096;

  [[nodiscard]] static stamp make_for_look() noexcept;
  [[nodiscard]] static stamp make_for_removal() noexcept { return make_for_look() | 1U; }

  /// The server's run, by its answer on each connection; empty: not known. `has_evicted`: it has given up keys in
  /// this run, and the stamp of a removal may have been one of them.
  void note_run(std::string_view run, bool has_evicted) {
    run_ = run;
    has_evicted_ = has_evicted;
  }
  [[nodiscard]] const std::string& run() const noexcept { return run_; }
  /// A look found this stamp, or has made it.
  void note_look(const instance_identity& identity, stamp number, steady_time now);
  /// A removal of this node has put `successor` in the place of `predecessor`; 0: of none.
  void note_removal(const instance_identity& identity, stamp predecessor, stamp successor, steady_time now);
  /// The stamp there is not known.
  void forget(const instance_identity& identity) { sights_.erase(identity); }
  /// With this stamp on the server, no other node has removed anything of the instance since `missed`. Nothing: that is
  /// not known.
  [[nodiscard]] std::optional<stamp> valid_stamp(const instance_identity& identity, steady_time missed) const noexcept;

 private:
  struct sight {
    stamp number = 0;
    steady_time quiet_start{};  ///< no other node has removed anything from then on
    std::string run{};          ///< of the server
  };

  [[nodiscard]] bool is_undisturbed(const instance_identity& identity, stamp number) const noexcept;
  void note(const instance_identity& identity, stamp predecessor, stamp successor, steady_time now);

  std::unordered_map<instance_identity, sight> sights_;
  std::string run_;
  bool has_evicted_ = false;
};

}  // namespace cenote::remote
