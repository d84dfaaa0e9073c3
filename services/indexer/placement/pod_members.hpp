// Pods with a publisher: their ranks stay members of the index, and nodes are linked with the pods of their machines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/indexer/forest/forest.hpp"

namespace cenote::indexer {

/// Keeps a holder without blocks for each rank of a pod that has a publisher, so that a node's blocks count for a pod
/// that has none itself. The writer's alone.
class pod_members {
 public:
  explicit pod_members(forest& index) noexcept : index_(index) {}

  /// A publisher of the pod begins. `node`: that of its machine, empty without one. False: a bound is reached.
  [[nodiscard]] bool add_publisher(std::string_view pod, model_number model, std::string_view node);
  /// One of its publishers ends.
  void remove_publisher(std::string_view pod, model_number model);
  [[nodiscard]] std::uint32_t publishers(std::string_view pod, model_number model) noexcept;
  /// A rank of a pod that has a publisher has sent something. False: a bound is reached.
  [[nodiscard]] bool add_rank(std::string_view pod, model_number model, std::uint16_t rank);
  /// The slots of the cache groups of a rank, a bit each.
  void set_slots(std::string_view pod, model_number model, std::uint16_t rank, std::uint32_t slots) noexcept;
  /// The blocks into which a block of its engine is cut.
  void set_step(std::string_view pod, model_number model, std::uint16_t rank, std::uint32_t blocks) noexcept;
  void mark(std::string_view pod, model_number model, std::uint16_t rank, member_mark state) noexcept;

  /// Links nodes with pods that have come or gone since the last call. Where memory is out the old links hold.
  void link();

  /// The name of a node's pod, `node:<name>`.
  [[nodiscard]] static std::string pod_of_node(std::string_view node) { return "node:" + std::string(node); }

 private:
  static constexpr std::size_t most_ranks = 1024;  ///< of a pod
  static constexpr holder_kind presence = kind_of(expected_slot, most_media - 1);

  struct rank_entry {
    std::uint16_t rank = 0;
    holder present = 0;
    std::uint32_t member = 0;
  };
  struct pod_entry {
    std::uint32_t publishers = 0;
    std::string node;
    std::vector<rank_entry> ranks;
  };
  using pod_map = std::map<std::pair<model_number, std::string>, pod_entry, std::less<>>;

  [[nodiscard]] pod_entry* find(std::string_view pod, model_number model) noexcept;
  [[nodiscard]] std::uint32_t member_of(std::string_view pod, model_number model, std::uint16_t rank) noexcept;

  forest& index_;
  pod_map pods_;
  std::size_t nodes_ = 0;  ///< pods that are nodes
  bool is_linked_ = true;  ///< no pod has come or gone since
};

}  // namespace cenote::indexer
