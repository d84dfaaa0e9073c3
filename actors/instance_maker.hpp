// The actor that makes instances' memory.
#pragma once

#include <caf/all.hpp>

#include <cstddef>
#include <functional>
#include <span>

#include "actors/messages.hpp"

namespace cenote {

/// Makes index and version table of an instance and has the keeper keep them, one instance after the other. It waits
/// for the keeper and the system, so it has a thread of its own (caf::detached): neither a tier nor the node's socket
/// waits with it.
class instance_maker final : public instance_maker_actor::base {
 public:
  /// Of the keeper, both of them; they may block.
  struct registry {
    std::function<result<void>(blocks::instance_number, std::span<const std::byte> meta, std::span<const int> fds)> put;
    std::function<result<void>(blocks::instance_number)> drop;
  };

  /// `next`: the number of the first one; `last` is the last that its tier has.
  instance_maker(caf::actor_config& config, blocks::instance_number next, blocks::instance_number last, registry keeper)
      : instance_maker_actor::base(config), next_(next), last_(last), keeper_(std::move(keeper)) {}

  [[nodiscard]] const char* name() const override { return "instance_maker"; }

 protected:
  behavior_type make_behavior() override;

 private:
  result<void> make(const instance_request& request, new_instance& made);

  blocks::instance_number next_;
  blocks::instance_number last_;
  registry keeper_;
};

}  // namespace cenote
