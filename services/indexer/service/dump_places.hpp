// Places for dumps that are being sent.
#pragma once

#include <semaphore>

namespace cenote::indexer {

/// Each dump holds a copy of a pod's blocks until it is sent: others are refused meanwhile. Thread-safe.
using dump_places = std::counting_semaphore<4>;

}  // namespace cenote::indexer
