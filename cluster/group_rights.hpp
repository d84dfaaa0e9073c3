// The instance groups that a node's configuration restricts, and how two nodes show each other that both do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/instance_spec.hpp"
#include "transport/peer/messages.hpp"
#include "transport/peer/network.hpp"

namespace cenote::cluster {

using group_names = std::set<std::string, std::less<>>;

/// The two ends of a bind.
enum class bind_side : std::uint8_t { asker, home };

/// Immutable; `link` is what the two ends of the link alone know, so that a proof is of no use on another one.
struct group_rights {
  /// By the group's name; empty: the group is restricted by its users alone, which another machine cannot look at.
  std::map<std::string, std::string, std::less<>> tokens{};

  /// This node's proof as `side`; none: it does not restrict the instance's group.
  [[nodiscard]] std::optional<peer::proof> proof_of(bind_side side, const instance_spec& spec,
                                                    const peer::ticket& link) const;
  /// The reason for which the other end, `side` with its `proof`, gets nothing of the instance; empty: there is none.
  /// A restricted group needs a proof that the other configuration has the same token. A home that restricts
  /// groups serves no group that its configuration does not name.
  [[nodiscard]] std::string refusal(bind_side side, const instance_spec& spec, const peer::ticket& link,
                                    const std::optional<peer::proof>& proof) const;
};

}  // namespace cenote::cluster
