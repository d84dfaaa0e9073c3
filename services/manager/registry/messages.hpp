// The messages of the wire that the registry keeps, under a short name.
#pragma once

#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/proto/registry.pb.h"
#include "transport/manager/proto/shared.pb.h"

namespace cenote::manager {

namespace proto = ::kv_cache_manager::proto;

}  // namespace cenote::manager
