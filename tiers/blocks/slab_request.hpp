// What a store asks of the provisioner.
#pragma once

#include <cstdint>

#include "memory/shared_file.hpp"
#include "memory/slab_mapping.hpp"
#include "memory/version_table.hpp"
#include "tiers/blocks/slab.hpp"

namespace cenote::blocks {

/// What the store asks of the provisioner.
struct slab_request {
  enum class kind : std::uint8_t {
    create,
    drop,
    forget,  ///< the instance `slab.instance`: comes behind the drops of its slabs
  };
  kind what = kind::create;
  slab_description slab;
  memory::slab_mapping memory{};     ///< drop: the mapping to give up
  memory::shared_file index{};       ///< forget: the instance's
  memory::version_table versions{};  ///< forget: the instance's
};

}  // namespace cenote::blocks
