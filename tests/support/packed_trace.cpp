#include "tests/support/packed_trace.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace cenote::testing {

simulation::trace load_packed_trace(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  simulation::trace made;
  std::vector<std::uint64_t> ids;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::uint64_t time = 0;
    std::uint64_t tokens = 0;
    line >> time >> tokens;
    ids.clear();
    for (std::uint64_t first = 0; line >> first; line.ignore(1, ',')) {
      std::uint64_t last = first;
      if (line.peek() == '-') line.ignore() >> last;
      for (std::uint64_t id = first; id <= last; ++id) ids.push_back(id);
    }
    if (ids.empty()) throw std::runtime_error("a bad line in " + path.string() + ": " + text);
    made.add(time, tokens, ids);
  }
  return made;
}

}  // namespace cenote::testing
