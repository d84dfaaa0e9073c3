// `cenote trace`: files of recorded requests.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_trace(CLI::App& app);

}  // namespace cenote
