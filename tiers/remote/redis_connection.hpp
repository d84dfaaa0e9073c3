// The connection of the tier's requests.
#pragma once

#include "tiers/remote/redis_request.hpp"
#include "transport/redis/server_connection.hpp"

namespace cenote::redis {

extern template class server_connection<remote::redis_request>;

}  // namespace cenote::redis

namespace cenote::remote {

using redis_connection = redis::server_connection<redis_request>;

}  // namespace cenote::remote
