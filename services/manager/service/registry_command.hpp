// Changes of the registry, as the writer makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/registry/registry.hpp"
#include "services/manager/writes/registry_state.hpp"
#include "services/manager/writes/remove_blocks.hpp"
#include "services/manager/writes/write_command.hpp"

namespace cenote::manager {

/// The basis of a decision about a change.
struct change_basis {
  const manager_registry& settings;
  /// Whether a storage has locations.
  std::function<storage_use(std::string_view storage)> use{};
};
using registry_edit = std::function<rpc_outcome<registry_change>(const change_basis&)>;

/// Decides a change on the latest registry, and takes it over. A change that drops the locations of a storage does so
/// first, some extents a round, while the storage takes no new ones.
class registry_command final : public write_command {
 public:
  /// `receive` gets the remark of the change.
  registry_command(registry_edit edit, outcome_receiver<std::string> receive)
      : edit_(std::move(edit)), receive_(std::move(receive)) {}

  [[nodiscard]] bool advance(write_parts& parts, write_round& round) override;
  void answer(const result<>& committed) override;
  [[nodiscard]] bool has_new_worker() const noexcept override { return has_new_worker_; }
  [[nodiscard]] std::string_view instance() const noexcept override { return {}; }

 private:
  [[nodiscard]] bool drop_locations(write_parts& parts, write_round& round, std::uint8_t storage);
  void apply(write_parts& parts, registry_change change);

  registry_edit edit_;
  outcome_receiver<std::string> receive_;
  rpc_outcome<std::string> outcome_{};
  std::vector<std::uint64_t> instances_;  ///< whose locations are still to be dropped
  std::optional<extent_walk> walk_;
  bool is_dropping_ = false;
  bool has_new_worker_ = false;
  std::optional<std::uint8_t> closing_;  ///< storage that takes no new blocks meanwhile
};

}  // namespace cenote::manager
