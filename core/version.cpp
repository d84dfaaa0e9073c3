#include "core/version.hpp"

namespace cenote {

std::string_view product_version() noexcept {
  return CENOTE_PRODUCT_VERSION;
}

}  // namespace cenote
