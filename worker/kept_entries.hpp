// How slabs and instances are entered at the keeper, by every block tier of the node.
#pragma once

#include "actors/instance_maker.hpp"
#include "tiers/blocks/provisioner.hpp"
#include "transport/local/keeper_link.hpp"

namespace cenote {

/// What a tier's provisioner says to the keeper.
struct kept_slabs {
  blocks::provisioner::keeper_put keep;
  blocks::provisioner::keeper_drop drop;
  blocks::provisioner::instance_drop forget;
};

/// The keeper outlives what is returned.
[[nodiscard]] kept_slabs slabs_kept_by(local::keeper_link& keeper);
[[nodiscard]] instance_maker::registry instances_kept_by(local::keeper_link& keeper);

}  // namespace cenote
