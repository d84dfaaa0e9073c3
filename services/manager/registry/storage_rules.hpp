// The rules for storages.
#pragma once

#include <set>

#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// The types of storages for which a plug-in is there.
using plugin_types = std::set<storage_type>;
/// All that there may be.
[[nodiscard]] plugin_types all_plugin_types();

/// The terms of a storage; its number is 0, and it is enabled unless the message has it disabled.
/// Refused: unsupported, for types without which this manager is built or that lack their plug-in; invalid_argument
/// with all fields that are wrong.
[[nodiscard]] rpc_outcome<storage_terms> make_storage_terms(const proto::admin::StorageConfig& config,
                                                            const plugin_types& plugins);

/// The type that a message means: that of its part, else its number; unspecified: neither is there, or the number is
/// unknown.
[[nodiscard]] storage_type type_of(const proto::admin::StorageConfig& config) noexcept;

/// The part of a message that has the fields of its type; null: there is none, or no type has it.
[[nodiscard]] const google::protobuf::Message* part_of(const proto::admin::StorageConfig& config);

}  // namespace cenote::manager
