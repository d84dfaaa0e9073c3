// Removals by key, and of whole instances.
#pragma once

#include <string_view>
#include <vector>

#include "services/manager/writes/write_command.hpp"
#include "services/manager/writes/write_requests.hpp"

namespace cenote::manager {

/// Removes keys, also those that are being written.
class remove_keys final : public write_command {
 public:
  remove_keys(remove_request request, outcome_receiver<void> receive)
      : request_(std::move(request)), receive_(std::move(receive)) {}

  [[nodiscard]] bool advance(write_parts& parts, write_round& round) override;
  void answer(const result<>& committed) override;
  [[nodiscard]] std::string_view instance() const noexcept override { return request_.instance; }

 private:
  [[nodiscard]] rpc_outcome<bool> remove(write_parts& parts, write_round& round);

  remove_request request_;
  outcome_receiver<void> receive_;
  rpc_outcome<> outcome_{};
  std::vector<bool> spared_;
  std::size_t next_ = 0;
  bool has_begun_ = false;
};

/// Goes through the extents of an instance, some in each round.
class extent_walk {
 public:
  enum class action : std::uint8_t { remove, forget };
  struct filter {
    std::uint32_t begin = 0, end = ~std::uint32_t{0};  ///< of the time of writing; open sessions only where begin is 0
    std::optional<std::uint8_t> storage{};
  };

  extent_walk(action act, filter extents) noexcept : action_(act), filter_(extents) {}

  /// True: all extents were visited.
  [[nodiscard]] bool advance(write_parts& parts, instance_state& instance, write_round& round);

 private:
  void visit(write_parts& parts, instance_state& instance, extent_state& extent) const;

  action action_;
  filter filter_;
  std::size_t next_ = 0;
};

/// Trims an instance.
class trim_instance final : public write_command {
 public:
  trim_instance(trim_request request, outcome_receiver<void> receive);

  [[nodiscard]] bool advance(write_parts& parts, write_round& round) override;
  void answer(const result<>& committed) override;
  [[nodiscard]] std::string_view instance() const noexcept override { return request_.instance; }

 private:
  trim_request request_;
  outcome_receiver<void> receive_;
  rpc_outcome<> outcome_{};
  extent_walk walk_;
};

}  // namespace cenote::manager
