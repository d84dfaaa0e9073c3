#include "tiers/remote/redis_connection.hpp"

#include "transport/redis/server_connection_code.hpp"

namespace cenote::redis {

template class server_connection<remote::redis_request>;

}  // namespace cenote::redis
